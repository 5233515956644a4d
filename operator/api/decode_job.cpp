// SPDX-License-Identifier: Apache-2.0
// A PipelineJob from JSON. Its status is as this or a former leader wrote it.
#include <algorithm>
#include <array>

#include "operator/api/decode_parts.h"
#include "operator/api/job_fields.h"

namespace weir::api {
namespace {

// Conditions of other controllers are not read, so that they are never sent as ours.
constexpr std::array kOurConditions = {
    "Accepted",  "PodsScheduled",    "WorkersReady", "Ready",
    "Degraded",  "ReplanInProgress", "Recoverable",  "NetworkMetricsAvailable",
    "Suspended", "Complete",         "Failed",       "Finished",
    "Stalled"};

}  // namespace

PipelineJob read_job(const Field& root) {
  PipelineJob job;
  job.meta = decode_meta(root["metadata"]);
  fields(JobReader(root["spec"]), job.spec);
  std::ranges::sort(job.spec.worker_groups, {}, &WorkerGroup::name);
  const JobReader status(root["status"]);
  fields(status, job.status);
  std::erase_if(job.status.conditions, [](const Condition& condition) {
    return std::ranges::find(kOurConditions, condition.type) == kOurConditions.end();
  });
  fields(status, job.report);
  return job;
}

}  // namespace weir::api
