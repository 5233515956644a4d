// SPDX-License-Identifier: Apache-2.0
#include "worker/app/own_plan.h"

namespace weir::app {

schedule::Plan own_plan(const std::string& job_uid, const std::string& pod,
                        const std::string& pod_uid, int layers, int micro_batches,
                        int micro_batch_size) {
  schedule::Plan plan;
  plan.job_uid = job_uid;
  plan.revision = 1;
  plan.schedule = {.family = schedule::Family::kOneFOneB,
                   .dispatch = schedule::Dispatch::kStrict,
                   .k = 1,
                   .micro_batch_size = micro_batch_size,
                   .caps = {1}};
  plan.micro_batches = {micro_batches};
  plan.stages = {{.first = 0, .last = layers - 1}};
  plan.ranks = {{.pod = pod, .pod_uid = pod_uid}};
  return plan;
}

}  // namespace weir::app
