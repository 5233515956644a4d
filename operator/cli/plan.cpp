// SPDX-License-Identifier: Apache-2.0
// `plan JOB`: the newest plan by stage and the history of revisions.
#include <algorithm>

#include "operator/cli/figures.h"
#include "operator/cli/outcome.h"
#include "operator/cli/views.h"
#include "worker/base/text.h"

namespace weir::cli {
namespace {

void append(Lines& to, const Lines& more) {
  to.insert(to.end(), more.begin(), more.end());
}

const schedule::Plan* plan_of(const std::vector<PlanRecord>& plans, std::int64_t revision) {
  const auto found = std::ranges::find_if(
      plans, [&](const PlanRecord& one) { return one.plan.revision == revision; });
  return found == plans.end() ? nullptr : &found->plan;
}

std::string plan_heading(const JobView& job) {
  const api::PlanStatus& plan = job.status.plan;
  std::string text =
      job.name + ": plan " + std::to_string(plan.revision) + " (" + or_dash(plan.trigger) + "), ";
  if (plan.applied_revision == plan.revision) {
    text += "in force since step " + std::to_string(plan.applied_step);
  } else if (plan.applied_revision > 0) {
    text += "not in force: plan " + std::to_string(plan.applied_revision) + " is";
  } else {
    text += "not in force yet";
  }
  text += "; " + plan_text(job);
  const bool whole = plan.split.empty() || plan.split.starts_with("no");
  if (!whole) text += "; split backwards: " + plan.split;
  if (!plan.codecs.empty()) text += "; codecs: " + plan.codecs;
  return text;
}

std::string promise(const api::PlanStatus& plan) {
  std::vector<std::string> parts;
  if (!plan.predicted_step_seconds.empty()) {
    parts.push_back("predicted: " + plan.predicted_step_seconds + " s a step");
  }
  std::vector<std::string> above;
  const auto add = [&](const std::optional<int>& percent_above, const char* how) {
    if (percent_above) above.push_back(how + std::to_string(*percent_above) + " %");
  };
  add(plan.bound_percent_measured, "measured ");
  add(plan.bound_percent_simulated, "simulated ");
  if (!above.empty()) parts.push_back("above what no order can beat: " + joined(above, ", "));
  return joined(parts, "; ");
}

Lines stage_table(const api::PlanStatus& plan) {
  std::vector<Row> rows{{"STAGE", "LAYERS", "CAP", "RANKS", "GROUP", "NODE"}};
  for (const api::StageStatus& stage : plan.stages) {
    rows.push_back({std::to_string(stage.index),
                    std::to_string(stage.first_layer) + "-" + std::to_string(stage.last_layer),
                    std::to_string(stage.in_flight_cap), std::to_string(stage.replicas),
                    or_dash(stage.worker_group),
                    or_dash(stage.node) + (stage.replicas > 1 ? ", .." : "")});
  }
  return table(rows, {4, 5});
}

Row revision_row(const JobView& job, const std::vector<PlanRecord>& plans, const PlanRecord& record,
                 const std::vector<JobEvent>& events, api::Time now) {
  const schedule::Plan& plan = record.plan;
  const api::PlanStatus& status = job.status.plan;
  Judgement judged = judgement_of(plan.revision, events);
  if (plan.revision == status.revision && judged.measured.empty() &&
      !status.measured_gain_percent.empty()) {
    judged.measured =
        status.measured_gain_percent + " %" +
        (status.measured_gain_error.empty() ? "" : " (+-" + status.measured_gain_error + ")");
  }
  const double gain = plan.predicted_gain;
  const bool told = plan.revision == status.revision && !status.predicted_gain_interval.empty();
  const std::string interval = told ? " (" + status.predicted_gain_interval + ")" : "";
  return {std::to_string(plan.revision),
          clock_text(record.made, now),
          difference(plan_of(plans, plan.parent), plan) + " (" + schedule::name(plan.trigger) + ")",
          gain != 0 ? signed_percent(gain) + " %" + interval : "-",
          or_dash(judged.measured),
          or_dash(judged.verdict)};
}

}  // namespace

const schedule::Plan* plan_in_force(const JobView& job, const std::vector<PlanRecord>& plans) {
  const api::PlanStatus& status = job.status.plan;
  return plan_of(plans, status.applied_revision > 0 ? status.applied_revision : status.revision);
}

Result<std::string> pod_of(const JobView& job, const schedule::Plan* plan, int rank) {
  if (job.status.plan.revision == 0) {
    return invalid(job.name + " has no plan yet, so no rank has a pod");
  }
  if (plan == nullptr) {
    return invalid(job.name +
                   ": the ConfigMap of its plan is gone, so the pods of ranks are unknown");
  }
  const int last = static_cast<int>(plan->ranks.size()) - 1;
  if (rank < 0 || rank > last) {
    return invalid("--rank: plan " + std::to_string(plan->revision) + " of " + job.name +
                   " has the ranks 0 to " + std::to_string(last) + ", found " +
                   std::to_string(rank));
  }
  return plan->ranks[static_cast<std::size_t>(rank)].pod;
}

Lines plan_lines(const JobView& job, const std::vector<PlanRecord>& plans,
                 const std::vector<JobEvent>& events, api::Time now) {
  if (job.status.plan.revision == 0) {
    return paragraph("", job.name + ": there is no plan yet (" + state_of(job) + ")");
  }
  Lines lines = paragraph("", plan_heading(job));
  if (const std::string text = promise(job.status.plan); !text.empty()) {
    append(lines, paragraph("", text));
  }
  if (!job.status.plan.stages.empty()) append(lines, stage_table(job.status.plan));
  lines.emplace_back();
  if (plans.empty()) {
    lines.emplace_back("no ConfigMap " + job.name +
                       "-plan-... can be read: the history is unknown");
    return lines;
  }
  std::vector<Row> rows{
      {"REVISION", "TIME (UTC)", "WHAT", "PREDICTED (80 %)", "MEASURED", "JUDGED"}};
  for (const PlanRecord& record : plans) {
    rows.push_back(revision_row(job, plans, record, events, now));
  }
  append(lines, table(rows, {2, 5}));
  return lines;
}

}  // namespace weir::cli
