// SPDX-License-Identifier: Apache-2.0
// Logs the decisions of a pass. Each line has job, plan revision and reason, so that the lines of
// one job can be found among those of many. Only the executor writes them.
#pragma once

#include <string>
#include <vector>

#include "operator/api/pipeline_job.h"
#include "worker/schedule/plan.h"

namespace weir::controller {

// One line per condition whose status or reason has changed.
void log_conditions(const api::PipelineJob& job, const api::JobStatus& now);
void log_new_plan(const api::PipelineJob& job, const schedule::Plan& plan);
void log_new_pods(const api::PipelineJob& job, std::size_t count);
void log_deletion(const api::PipelineJob& job, const std::string& pod, const std::string& why);

}  // namespace weir::controller
