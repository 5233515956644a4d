// SPDX-License-Identifier: Apache-2.0
// The output of each command: objects in, lines out. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/cli/job_view.h"
#include "operator/cli/text.h"

namespace weir::cli {

// `top`: a line for each job. with_namespace: the first column names it.
Lines top_lines(const std::vector<JobView>& jobs, api::Time now, bool with_namespace);

// `top JOB`: a line for each rank of the plan in force; plan: null = it could not be read.
Lines rank_lines(const JobView& job, const schedule::Plan* plan, api::Time now);

// `plan JOB`: the newest plan by stage, then its revisions with what was promised and measured.
Lines plan_lines(const JobView& job, const std::vector<PlanRecord>& plans,
                 const std::vector<JobEvent>& events, api::Time now);

// `why JOB`. events: nothing if they could not be read.
Lines why_lines(const JobView& job, const std::optional<std::vector<JobEvent>>& events,
                api::Time now);

Lines checkpoint_lines(const JobView& job, api::Time now);

// These tell what `suspend`, `resume` and `scale` have asked for; `job` is the server's answer.
std::string suspended_line(const JobView& job);
std::string resumed_line(const JobView& job);
std::string scaled_line(const JobView& job);

// The plan in force: that of the revision applied, or the newest if none is. Null: not among them.
const schedule::Plan* plan_in_force(const JobView& job, const std::vector<PlanRecord>& plans);
// The pod of a rank. kInvalid with the reason: there is no plan, or no such rank.
Result<std::string> pod_of(const JobView& job, const schedule::Plan* plan, int rank);

}  // namespace weir::cli
