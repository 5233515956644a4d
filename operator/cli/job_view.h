// SPDX-License-Identifier: Apache-2.0
// The objects that the commands show, read from the JSON of the API server. Pure. All texts are
// printable. A field that is missing or has a wrong type keeps its default; kInvalid: no object.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/job_status.h"
#include "worker/base/result.h"
#include "worker/schedule/plan.h"

namespace weir::cli {

struct JobView {
  std::string name, namespace_name, uid;
  api::Time created{};
  bool frozen = false;  // annotation weir.dev/freeze-plan
  // These are in the spec.
  bool suspended = false;
  int replicas = 1, global_batch = 0;
  std::string adaptation_mode = "Auto", managed_by;
  std::string checkpoint_path, checkpoint_claim;
  std::optional<int> checkpoint_interval_steps;
  api::JobStatus status;
  api::ReportStatus report;
};

Result<JobView> read_job(std::string_view json);
Result<std::vector<JobView>> read_jobs(std::string_view list);  // by namespace, then by name

// An event of the job.
struct JobEvent {
  api::Time time{};
  std::string type, reason, note;
};
// list: core/v1 events. Those of an object with another uid are left out. Oldest first.
Result<std::vector<JobEvent>> read_events(std::string_view list, const std::string& uid);

// A plan with the time at which the operator made it.
struct PlanRecord {
  api::Time made{};
  schedule::Plan plan;
};
// list: ConfigMaps. Plans of the job with this uid that can be read; newest first.
Result<std::vector<PlanRecord>> read_plans(std::string_view list, const std::string& uid);

// The condition of this type, or null.
const api::Condition* condition(const JobView& job, std::string_view type);
bool is_true(const JobView& job, std::string_view type);

}  // namespace weir::cli
