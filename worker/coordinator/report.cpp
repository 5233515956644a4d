// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "worker/base/units.h"

namespace weir::coordinator {
namespace {

constexpr std::size_t kRecentSteps = 10;  // steps for the rate; PlanOutcome compares 10 steps, too
constexpr std::size_t kMaxMembers = 512;  // within protocol::kMaxReportBytes

protocol::MemberReport describe(const MemberState& state, const schedule::Plan* plan,
                                SteadyTime now) {
  protocol::MemberReport result{.pod = state.member.pod, .pod_uid = state.member.pod_uid};
  result.ready = state.connected() && plan != nullptr && state.revision == plan->revision;
  if (!state.connected() && state.silent_since) {
    result.silent_seconds = to_seconds(now - *state.silent_since);
  }
  if (state.status) {
    result.step_seconds = state.status->step_seconds;
    result.compute_seconds = state.status->compute_seconds;
    result.idle_seconds = state.status->idle_seconds;
    result.memory_peak_bytes = state.status->memory_peak_bytes;
    result.memory_limit_bytes = state.status->memory_limit_bytes;
    result.memory_free_bytes = state.status->memory_free_bytes;
  }
  return result;
}

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
  double value_or(double other) const { return count > 0 ? sum / count : other; }
};

}  // namespace

void Reporter::on_status(int index, const protocol::StageStatus& status) {
  segments_.on_status(status);
  if (status.stage != 0 || status.step_seconds <= 0) return;
  auto& steps = recent_[index];
  steps.push_back({.seconds = status.step_seconds, .samples = status.samples});
  if (steps.size() > kRecentSteps) steps.pop_front();
}

protocol::Report Reporter::make(const schedule::Plan* plan, int incarnation, const Members& members,
                                const std::optional<protocol::LastSwitch>& last_switch,
                                SteadyTime now, const std::set<int>& lost) {
  protocol::Report report{.job_uid = job_uid_,
                          .sequence = ++sequence_,
                          .plan_revision = plan != nullptr ? plan->revision : 0,
                          .incarnation = incarnation,
                          .last_switch = last_switch,
                          .total_steps = total_steps_,
                          .loss = std::numeric_limits<double>::quiet_NaN()};
  Mean loss, bubble;
  std::int64_t lowest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [index, state] : members.all()) {
    report.members.push_back(describe(state, plan, now));
    const bool trains =
        plan != nullptr && std::ranges::any_of(plan->ranks, [&](const schedule::RankPlace& rank) {
          return rank.pod == state.member.pod && !lost.contains(rank.replica);
        });
    // The rank may have loaded a checkpoint after which no step is left to do.
    if (trains && state.revision == plan->revision) lowest = std::min(lowest, state.step);
    if (!state.status) continue;
    const auto& status = *state.status;
    if (!trains) continue;
    if (state.revision != plan->revision) lowest = std::min(lowest, status.step);
    report.skipped_steps = std::max(report.skipped_steps, status.skipped_steps);
    report.skipped_in_row = std::max(report.skipped_in_row, status.skipped_in_row);
    if (status.step_seconds > 0) bubble.add(status.idle_seconds / status.step_seconds);
    if (status.stage == plan->stage_count() - 1 && !std::isnan(status.loss)) loss.add(status.loss);
  }
  if (lowest != std::numeric_limits<std::int64_t>::max()) report.step = lowest;
  report.loss = loss.value_or(report.loss);
  report.bubble_ratio = bubble.value_or(0);
  for (const auto& [index, steps] : recent_) {
    double seconds = 0;
    std::int64_t samples = 0;
    for (const auto& step : steps) seconds += step.seconds, samples += step.samples;
    if (seconds > 0) report.samples_per_second += static_cast<double>(samples) / seconds;
  }
  if (report.members.size() > kMaxMembers) {  // members that are not ready matter most
    std::ranges::stable_partition(report.members, [](const auto& m) { return !m.ready; });
    report.members.resize(kMaxMembers);
  }
  report.segment = segments_.current();
  report.previous_segment = segments_.previous();
  if (report.previous_segment) {  // nobody asks where steps of an earlier plan went
    for (protocol::SegmentRank& rank : report.previous_segment->ranks) rank.parts.reset();
  }
  return report;
}

}  // namespace weir::coordinator
