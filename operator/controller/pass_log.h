// SPDX-License-Identifier: Apache-2.0
// What a pass has decided, as log lines: each with job, plan revision and reason, so that one job's
// story can be picked out of the log of a thousand. Written once, by the executor.
#pragma once

#include <string>
#include <vector>

#include "operator/api/pipeline_job.h"
#include "worker/schedule/plan.h"

namespace weir::controller {

// One line per condition whose status or reason differs.
void log_conditions(const api::PipelineJob& job, const api::JobStatus& now);
void log_new_plan(const api::PipelineJob& job, const schedule::Plan& plan);
void log_new_pods(const api::PipelineJob& job, std::size_t count);
void log_deletion(const api::PipelineJob& job, const std::string& pod, const std::string& why);

}  // namespace weir::controller
