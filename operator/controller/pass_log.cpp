// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/pass_log.h"

#include <algorithm>

#include "worker/base/log.h"

namespace weir::controller {
namespace {

std::string name_of(const api::PipelineJob& job) {
  return job.meta.namespace_name + "/" + job.meta.name;
}

}  // namespace

void log_conditions(const api::PipelineJob& job, const api::JobStatus& now) {
  for (const api::Condition& condition : now.conditions) {
    const auto before =
        std::ranges::find(job.status.conditions, condition.type, &api::Condition::type);
    if (before != job.status.conditions.end() && before->status == condition.status &&
        before->reason == condition.reason) {
      continue;
    }
    log_info("controller", "condition",
             {{"job", name_of(job)},
              {"revision", now.plan.revision},
              {"reason", condition.reason},
              {"condition", condition.type},
              {"status", condition.status},
              {"message", condition.message}});
  }
}

void log_new_plan(const api::PipelineJob& job, const schedule::Plan& plan) {
  log_info("controller", "new plan",
           {{"job", name_of(job)},
            {"revision", plan.revision},
            {"reason", schedule::name(plan.trigger)},
            {"k", plan.schedule.k},
            {"stages", plan.stages.size()},
            {"predicted_seconds", plan.predicted_step_seconds}});
}

void log_new_pods(const api::PipelineJob& job, std::size_t count) {
  log_info("controller", "made pods",
           {{"job", name_of(job)},
            {"revision", job.status.plan.revision},
            {"reason", "Missing"},
            {"pods", count}});
}

void log_deletion(const api::PipelineJob& job, const std::string& pod, const std::string& why) {
  log_info("controller", "deleting pod",
           {{"job", name_of(job)},
            {"revision", job.status.plan.revision},
            {"reason", why},
            {"pod", pod}});
}

}  // namespace weir::controller
