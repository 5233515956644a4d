// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/snapshot_rounds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/base/text.h"

namespace weir::coordinator {
namespace {

constexpr std::int64_t kFurthestAhead = 1024;    // 1 s of delay with steps of 1 ms
constexpr std::int64_t kLongestInterval = 1024;  // after failures, as a multiple of the wanted one
constexpr double kShare = 0.01;                  // of the time, which snapshots may cost
constexpr double kMostSteps = 1e6;

}  // namespace

SnapshotRounds::Effects SnapshotRounds::advance(const schedule::Plan* plan, const Members& members,
                                                SteadyTime now) {
  Effects effects;
  if (policy_.every_steps == 0) return effects;
  if (plan == nullptr || plan->replica_count() > 1) {
    if (round_) close("the generation is over", members, effects);
    reached_ = 0;
    if (plan != nullptr) state_.clear();
    return effects;
  }
  if (!round_) {
    open(*plan, members, now, effects);
  } else if (policy_.deadline.count() > 0 && now - round_->opened >= policy_.deadline) {
    fail("no answer from workers " + joined(round_->waiting, ", "), members, effects);
  }
  return effects;
}

void SnapshotRounds::open(const schedule::Plan& plan, const Members& members, SteadyTime now,
                          Effects& effects) {
  std::vector<const MemberState*> ranks;
  std::int64_t highest = reached_;
  for (const schedule::RankPlace& rank : plan.ranks) {
    const MemberState* const member = members.by_pod(rank.pod);
    if (member == nullptr) return;
    ranks.push_back(member);
    highest = std::max(highest, member->step);
  }
  const std::int64_t step = (highest + ahead_ + interval_ - 1) / interval_ * interval_;
  if (step >= total_steps_) return;  // the end comes first
  round_ = Round{.step = step, .waiting = {}, .opened = now};
  for (const MemberState* const rank : ranks) {
    round_->waiting.insert(rank->member.worker_index);
    effects.send.emplace_back(rank->member.worker_index,
                              protocol::Save{.step = step, .replicas = {}, .snapshot = true});
  }
}

SnapshotRounds::Effects SnapshotRounds::on_saved(int index, const protocol::Saved& saved,
                                                 const Members& members) {
  Effects effects;
  if (!round_ || round_->step != saved.step || !round_->waiting.contains(index)) return effects;
  if (saved.late) {
    reached_ = std::max(reached_, saved.at);
    ahead_ = std::min(2 * ahead_, kFurthestAhead);
    close("SAVE came too late", members, effects);
  } else if (!saved.error.empty()) {
    fail("worker " + std::to_string(index) + ": " + saved.error, members, effects);
  } else {
    round_->waiting.erase(index);
    round_->seconds = std::max(round_->seconds, saved.seconds);
    if (!round_->waiting.empty()) return effects;
    pace(members);
    std::string state = "each " + std::to_string(interval_) + " steps";
    if (interval_ > policy_.every_steps) state += ", since more would cost over 1 % of the time";
    if (std::exchange(state_, state) != state) {
      effects.notes.push_back("all ranks have snapshots of step " + std::to_string(saved.step));
    }
    close("", members, effects);
  }
  return effects;
}

// Small changes keep the interval.
void SnapshotRounds::pace(const Members& members) {
  double step = 0;
  for (const auto& [index, state] : members.all()) {
    if (state.status) step = std::max(step, state.status->step_seconds);
  }
  const double least = step > 0 ? std::min(round_->seconds / (kShare * step), kMostSteps) : 0;
  const auto steps = static_cast<std::int64_t>(std::ceil(least));
  const std::int64_t wanted = std::max(policy_.every_steps, steps);
  if (wanted > interval_) interval_ = wanted + wanted / 4;
  if (2 * wanted < interval_) interval_ = wanted;
}

void SnapshotRounds::close(const std::string& error, const Members& members, Effects& effects) {
  const Round round = *std::exchange(round_, std::nullopt);
  for (const auto& [index, state] : members.all()) {
    if (!state.connected()) continue;
    effects.send.emplace_back(
        index, protocol::Saved{.step = round.step, .error = error, .files = {}, .snapshot = true});
  }
}

void SnapshotRounds::fail(const std::string& error, const Members& members, Effects& effects) {
  interval_ = std::min(2 * interval_, kLongestInterval * policy_.every_steps);
  state_ = "none of step " + std::to_string(round_->step) + ": " + error;
  effects.warnings.push_back("snapshots: " + state_ + "; the next ones come " +
                             std::to_string(interval_) + " steps later");
  close(error, members, effects);
}

}  // namespace weir::coordinator
