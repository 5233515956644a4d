// SPDX-License-Identifier: Apache-2.0
// The part of a plan that is fixed before the cut: devices, times, micro-batches. Inside the room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/placement/topology.h"
#include "operator/planner/graph/dag.h"
#include "operator/planner/plan.h"
#include "operator/planner/sync/engine.h"

namespace weir::planner {

// Devices that stages may use alike: equal class, memory and stage range.
struct DeviceKind {
  std::string device_class;
  std::int64_t usable_bytes = 0;  // after the reserve; 0 = no limit
  int first_stage = 0, last_stage = 0;
  std::vector<int> devices;  // in the order of the cluster
};

// Everything that is fixed before the cut, for one micro-batch size.
struct Setting {
  const Model* model = nullptr;
  const Cluster* cluster = nullptr;
  const Request* request = nullptr;
  const placement::Topology* topology = nullptr;
  std::vector<DeviceKind> kinds;
  std::vector<int> kind_of;  // by device
  int micro_batch_size = 1;
  std::vector<int> micro_batches;      // by replica
  Dag dag;                             // its classes are the columns of `classes`
  std::vector<SyncClass> classes;      // by kind; counts are those of one replica
  int micro_batches_of_bound() const;  // M that every replica has at least
};

// "b -> a" of the first edge that contradicts the order of layers, or nothing.
std::string edge_that_runs_back(const Model& model);
// The one asked for, or every divisor that makes at most 512 micro-batches.
Result<std::vector<int>> micro_batch_sizes(const Request& request);
// All but the request are kept by pointer.
Result<Setting> setting_of(const Model& model, const Cluster& cluster, const Request& request,
                           const placement::Topology& topology, int micro_batch_size);
// The first stage that no device may run when each takes the first that fits.
int stage_without_rank(const Setting& setting);
// Seconds of a step that no plan is below, whatever its cut: fair share of all devices, and the
// heaviest layer alone. For where no better bound is known.
double simple_bound(const Setting& setting);
std::string gb(std::int64_t bytes);  // "12.3"
// One line with what is too large, with the least demanding plan: most stages, k_min.
Error does_not_fit(const Setting& setting);

}  // namespace weir::planner
