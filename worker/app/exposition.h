// SPDX-License-Identifier: Apache-2.0
// The series of the worker, built from snapshots at each scrape, so that they end with their stage.
// Names and labels: worker/telemetry/README.md "Worker". Pure.
#pragma once

#include <string>
#include <vector>

#include "worker/engine/statistics.h"
#include "worker/telemetry/metric.h"
#include "worker/transport/communicator.h"

namespace weir::app {

struct WorkerLabels {
  std::string job_namespace, job_name, worker;  // on every series; worker = name of the pod
  std::string worker_group, node, device, transport, version;
  bool emulated = false;
  int threads = 1;  // that compute
};

std::vector<telemetry::Family> worker_families(const WorkerLabels& labels,
                                               const engine::Statistics& statistics,
                                               const std::vector<transport::LinkReport>& links,
                                               std::int64_t memory_free = -1,  // < 0 = unknown
                                               // < 0 = this worker writes no training log
                                               std::int64_t log_dropped = -1);

// Name of a boundary, e.g. "1-2" for boundary 1; directions are "fwd" and "bwd".
std::string link_name(int boundary);
// E.g. "s1:r0-r2" for sums of stage 1 from replica 0 to replica 2. The direction is "sync".
std::string sync_link_name(int stage, int from, int to);
const char* direction_name(transport::Channel channel);

}  // namespace weir::app
