// SPDX-License-Identifier: Apache-2.0
// `top`: all jobs, or the ranks of one.
#include <algorithm>

#include "operator/cli/figures.h"
#include "operator/cli/views.h"
#include "worker/base/text.h"

namespace weir::cli {
namespace {

std::string bound_text(const JobView& job) {
  const api::PlanStatus& plan = job.status.plan;
  if (plan.bound_percent_measured) return std::to_string(*plan.bound_percent_measured) + " %";
  if (!plan.bound_percent_simulated) return "-";
  return "~" + std::to_string(*plan.bound_percent_simulated) + " %";
}

std::string step_time_text(const JobView& job) {
  const auto seconds = step_seconds(job);
  return runs(job) && seconds ? time_text(*seconds) : "-";
}

std::string layers_text(const schedule::LayerRange& layers) {
  return std::to_string(layers.first) + "-" + std::to_string(layers.last);
}

}  // namespace

Lines top_lines(const std::vector<JobView>& jobs, api::Time now, bool with_namespace) {
  if (jobs.empty()) return {"no jobs"};
  std::vector<Row> rows{{"NAME", "STATE", "STEP", "STEP-TIME", "OVER-BOUND", "SAMPLES/S", "K",
                         "NETWORK", "PLAN", "DATA-AGE"}};
  for (const JobView& job : jobs) {
    const api::PlanStatus& plan = job.status.plan;
    const bool moves = runs(job);
    rows.push_back({job.name, state_of(job), step_text(job), step_time_text(job),
                    moves ? bound_text(job) : "-",
                    moves ? or_dash(job.report.samples_per_second) : "-",
                    plan.revision > 0 ? std::to_string(plan.k) : "-",
                    moves ? or_dash(job.report.network_state) : "-",
                    plan.revision > 0 ? std::to_string(plan.revision) : "-", data_age(job, now)});
  }
  if (!with_namespace) return table(rows, {0});
  rows.front().insert(rows.front().begin(), "NAMESPACE");
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    rows[i + 1].insert(rows[i + 1].begin(), jobs[i].namespace_name);
  }
  return table(rows, {0, 1});
}

namespace {

using PerformanceRank = api::PerformanceRank;

bool any_throttled(const api::Performance& performance) {
  return std::ranges::any_of(
      performance.ranks, [](const PerformanceRank& rank) { return rank.throttled.has_value(); });
}

// The other replicas' ranks are not told.
void add_shares(const api::Performance& performance, const schedule::RankPlace& rank, Row& row) {
  const auto told = std::ranges::find(performance.ranks, rank.stage, &PerformanceRank::stage);
  const bool known = rank.replica == performance.replica && told != performance.ranks.end();
  for (const auto share :
       {&PerformanceRank::busy, &PerformanceRank::late, &PerformanceRank::link,
        &PerformanceRank::full, &PerformanceRank::replicas, &PerformanceRank::update}) {
    row.push_back(known ? std::to_string(*told.*share) + " %" : "-");
  }
  if (!any_throttled(performance)) return;
  row.push_back(known && told->throttled ? std::to_string(*told->throttled) + " %" : "-");
}

}  // namespace

Lines rank_lines(const JobView& job, const schedule::Plan* plan, api::Time now) {
  std::string head = job.name + ": " + state_of(job) + ", step " + step_text(job);
  if (const auto seconds = step_seconds(job); runs(job) && seconds) {
    head += ", a step takes " + time_text(*seconds);
  }
  if (!job.status.recovery.spares.empty()) head += ", spares " + job.status.recovery.spares;
  if (const auto& named = job.status.coordinator)
    head += ", coordinator " + named->pod + " (term " + std::to_string(named->term) + ")";
  if (job.report.last_report_time) head += ", as of " + data_age(job, now) + " ago";
  Lines lines = paragraph("", head);
  if (plan == nullptr) {
    lines.emplace_back(job.status.plan.revision > 0
                           ? "its plan is not among the ConfigMaps " + job.name + "-plan-..."
                           : "it has no plan yet, so no rank has a place");
    return lines;
  }
  std::vector<Row> rows{
      {"RANK", "POD", "NODE", "REPLICA", "STAGE", "LAYERS", "CAP", "MICRO-BATCHES"}};
  const api::Performance& performance = job.report.performance;
  const bool timed = !performance.ranks.empty();
  if (timed) {
    for (const char* column : {"BUSY", "LATE", "LINK", "FULL", "REPLICAS", "UPDATE"}) {
      rows.front().emplace_back(column);
    }
    // Names would be cut for a column that tells nothing of most jobs.
    if (any_throttled(performance)) rows.front().emplace_back("THROTTLED");
  }
  for (std::size_t i = 0; i < plan->ranks.size(); ++i) {
    const schedule::RankPlace& rank = plan->ranks[i];
    const auto stage = static_cast<std::size_t>(rank.stage);
    const auto replica = static_cast<std::size_t>(rank.replica);
    const auto& caps = plan->schedule.caps;
    rows.push_back({std::to_string(i), rank.pod, or_dash(rank.node), std::to_string(rank.replica),
                    std::to_string(rank.stage),
                    stage < plan->stages.size() ? layers_text(plan->stages[stage]) : "-",
                    stage < caps.size() ? std::to_string(caps[stage]) : "-",
                    replica < plan->micro_batches.size()
                        ? std::to_string(plan->micro_batches[replica])
                        : "-"});
    if (timed) add_shares(performance, rank, rows.back());
  }
  for (const std::string& line : table(rows, {1, 2})) lines.push_back(line);
  if (!plan->idle.empty()) {
    for (const std::string& line : paragraph("idle: ", joined(plan->idle, ", "))) {
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace weir::cli
