// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/snapshot_rounds.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "worker/base/text.h"
#include "worker/coordinator/who_keeps.h"

namespace weir::coordinator {
namespace {

constexpr std::int64_t kFurthestAhead = 1024;    // 1 s of delay with steps of 1 ms
constexpr std::int64_t kLongestInterval = 1024;  // after failures, as a multiple of the wanted one
constexpr double kShare = 0.01;                  // of the time, which snapshots may cost
constexpr double kMostSteps = 1e6;
constexpr int kMostFailedCopies = 3;
constexpr std::chrono::seconds kOthersLeave{1};  // ranks of a node that is drained leave together

std::string worker(int index) {
  return "worker " + std::to_string(index);
}

// True if the snapshots of that step, or the copies of them, have all layers.
bool whole_set(const Members& members, const schedule::Plan& plan, std::int64_t step, bool copies) {
  std::set<int> layers;
  for (const auto& [index, state] : members.all()) {
    if (!state.connected()) continue;
    for (const protocol::Held& held : state.inventory.held) {
      if (!held.snapshot || held.copy != copies || held.step != step) continue;
      for (int layer = held.first; layer <= held.last; ++layer) layers.insert(layer);
    }
  }
  return std::ssize(layers) == plan.stages.back().last + 1;
}

}  // namespace

SnapshotRounds::Effects SnapshotRounds::advance(const schedule::Plan* plan, const Members& members,
                                                SteadyTime now) {
  Effects effects;
  if (policy_.every_steps == 0) return effects;
  if (plan == nullptr || plan->replica_count() > 1) {
    // Ranks that leave may be sources of a switch. If there is none, they end without their peers.
    if (round_ && !round_->copying) close("the generation is over", members, effects, true);
    round_.reset();  // all have their snapshots, and perhaps they are needed
    reached_ = 0;
    settled_ = false;
    told_ = false;
    whole_step_ = -1;
    failed_copies_ = 0;
    no_copies_.clear();
    if (plan != nullptr) state_.clear();
    return effects;
  }
  if (!std::exchange(settled_, true)) {
    neighbors_ = schedule::neighbors(*plan);
    nodes_.assign(plan->stages.size(), "");
    for (const auto& rank : plan->ranks) nodes_[static_cast<std::size_t>(rank.stage)] = rank.node;
    settle(*plan, members, effects);
  }
  serve_leaving_ranks(*plan, members, now, effects);
  if (!round_) {
    open(*plan, members, now, false, effects);
  } else if (policy_.deadline.count() > 0 && now - round_->opened >= policy_.deadline) {
    fail("no answer from workers " + joined(round_->waiting, ", "), members, effects);
  }
  return effects;
}

void SnapshotRounds::settle(const schedule::Plan& plan, const Members& members, Effects& effects) {
  std::int64_t start = 0;
  std::set<std::int64_t> steps;
  for (const auto& [index, state] : members.all()) {
    start = std::max(start, state.step);
    for (const protocol::Held& held : state.inventory.held) {
      if (held.snapshot) steps.insert(held.step);
    }
  }
  std::optional<std::int64_t> newest, copied;
  for (const std::int64_t step : steps) {
    if (step > start || !whole_set(members, plan, step, false)) continue;
    newest = step;
    if (whole_set(members, plan, step, true)) copied = step;
  }
  if (copied) newest = copied;
  if (!newest || steps.size() == 1) return;
  const auto all = [&](const protocol::Saved& saved) {
    for (const auto& [index, state] : members.all()) {
      if (state.connected()) effects.send.emplace_back(index, saved);
    }
  };
  all({.step = *newest, .files = {}, .snapshot = true});
  for (auto step = steps.upper_bound(*newest); step != steps.end(); ++step) {
    all({.step = *step, .error = "its round was left half done", .files = {}, .snapshot = true});
  }
}

std::vector<int> SnapshotRounds::unserved(const schedule::Plan& plan,
                                          const Members& members) const {
  std::vector<int> result;
  for (const schedule::RankPlace& rank : plan.ranks) {
    const MemberState* const member = members.by_pod(rank.pod);
    const bool wants =
        member != nullptr && member->connected() && member->leaving && !member->finished;
    if (wants && !served_.contains(member->session)) result.push_back(member->member.worker_index);
  }
  return result;
}

void SnapshotRounds::serve_leaving_ranks(const schedule::Plan& plan, const Members& members,
                                         SteadyTime now, Effects& effects) {
  if (!policy_.for_leaving) return;
  const std::vector<int> leaving = unserved(plan, members);
  if (leaving.empty()) leaving_since_.reset();
  if (leaving.empty()) return;
  if (!leaving_since_) leaving_since_ = now;
  const bool all = std::ranges::all_of(
      members.all(), [](const auto& one) { return !one.second.connected() || one.second.leaving; });
  std::string why_not;
  if (all) why_not = "all leave";
  if (policy_.copies == NeighborCopies::kOff) why_not = "no copies are wanted";
  if (neighbors_.keeper.empty()) why_not = "no worker would keep copies";
  if (!no_copies_.empty()) why_not = no_copies_;
  if (!why_not.empty()) {
    for (const int index : leaving) {
      effects.send.emplace_back(
          index, protocol::Saved{
                     .step = 0, .error = why_not, .leave = true, .files = {}, .snapshot = true});
      served_.insert(members.find(index)->session);
    }
    return;
  }
  if (now - *leaving_since_ < kOthersLeave) return;
  // A rank holds at the step of a SAVE that comes after its LEAVE, so an older round does not count
  // for it. That one is soon over, if its step is not far.
  const std::int64_t step = soonest(plan, members);
  if (round_ && (round_->copying || round_->soon || round_->step <= step)) return;
  open(plan, members, now, true, effects);
  if (!round_ || !round_->soon) return;  // training ends before that step
  for (const int index : leaving) round_->leaving.insert(members.find(index)->session);
}

std::int64_t SnapshotRounds::soonest(const schedule::Plan& plan, const Members& members) const {
  std::int64_t highest = reached_;
  for (const schedule::RankPlace& rank : plan.ranks) {
    const MemberState* const member = members.by_pod(rank.pod);
    if (member != nullptr) highest = std::max(highest, member->step);
  }
  return std::max(highest + ahead_, whole_step_ + 1);
}

void SnapshotRounds::open(const schedule::Plan& plan, const Members& members, SteadyTime now,
                          bool soon, Effects& effects) {
  Round round{.waiting = {}, .opened = now, .sources = {}, .workers = {}};
  round.sources.resize(plan.stages.size());
  round.workers.resize(plan.stages.size());
  std::int64_t highest = reached_;
  for (const schedule::RankPlace& rank : plan.ranks) {
    const MemberState* const member = members.by_pod(rank.pod);
    if (member == nullptr) return;
    highest = std::max(highest, member->step);
    const int index = member->member.worker_index;
    const auto stage = static_cast<std::size_t>(rank.stage);
    round.waiting.insert(index);
    round.workers[stage] = index;
    round.sources[stage] = {.ip = rank.ip,
                            .data_port = rank.data_port,
                            .first_layer = plan.stages[stage].first,
                            .files = {}};
  }
  round.soon = soon;
  round.step =
      soon ? soonest(plan, members) : (highest + ahead_ + interval_ - 1) / interval_ * interval_;
  if (round.step >= total_steps_) return;  // the end comes first
  for (const int index : round.waiting) {
    effects.send.emplace_back(index,
                              protocol::Save{.step = round.step, .replicas = {}, .snapshot = true});
  }
  round_ = std::move(round);
}

SnapshotRounds::Effects SnapshotRounds::on_saved(int index, const protocol::Saved& saved,
                                                 const Members& members) {
  Effects effects;
  if (!round_ || round_->step != saved.step || !round_->waiting.contains(index)) return effects;
  if (saved.copy != round_->copying) return effects;
  if (does_not_train(saved)) return effects;
  if (saved.late) {
    reached_ = std::max(reached_, saved.at);
    ahead_ = std::min(2 * ahead_, kFurthestAhead);
    close("SAVE came too late", members, effects, true);
  } else if (!saved.error.empty()) {
    if (saved.copy && replace_keeper(index, members, effects)) {
      effects.warnings.push_back("snapshots: " + worker(index) + ": " + saved.error);
      if (round_->waiting.empty()) whole(members, effects);
    } else if (saved.copy) {
      on_copy_failed(index, saved, members, effects);
    } else {
      fail(worker(index) + ": " + saved.error, members, effects);
    }
  } else {
    if (!round_->copying || copied(index, effects)) round_->waiting.erase(index);
    double& longest = round_->copying ? round_->copy_seconds : round_->seconds;
    longest = std::max(longest, saved.seconds);
    if (!round_->copying) {
      round_->sources[static_cast<std::size_t>(stage_of(index))].files = saved.files;
    }
    if (!round_->waiting.empty()) return effects;
    if (round_->copying || !order_copies(members, effects)) whole(members, effects);
  }
  return effects;
}

std::set<int> SnapshotRounds::stages_that_leave(const Members& members) const {
  std::set<int> stages;
  for (std::size_t stage = 0; stage < round_->workers.size(); ++stage) {
    const MemberState* const member = members.find(round_->workers[stage]);
    const bool stays = member != nullptr && member->connected() && !member->leaving;
    if (!stays) stages.insert(static_cast<int>(stage));
  }
  return stages;
}

bool SnapshotRounds::a_copy_leaves(const Members& members) const {
  if (round_->leaving.empty()) return false;
  const std::set<int> leaving = stages_that_leave(members);
  return std::ranges::any_of(leaving, [&](int stage) {
    return leaving.contains(round_->keeper[static_cast<std::size_t>(stage)]);
  });
}

bool SnapshotRounds::order_copies(const Members& members, Effects& effects) {
  if (policy_.copies == NeighborCopies::kOff || !no_copies_.empty()) return false;
  if (neighbors_.keeper.empty()) return false;
  for (std::size_t stage = 0; stage < round_->sources.size(); ++stage) {
    if (!round_->sources[stage].files.empty()) continue;
    no_copies_ = worker(round_->workers[stage]) + " is of an older release";
    return false;
  }
  round_->copying = true;
  round_->keeper = neighbors_.keeper;
  const std::set<int> leaving = stages_that_leave(members);
  if (!round_->leaving.empty()) {
    round_->keeper = keepers_that_stay(round_->keeper, nodes_, leaving, {});
  }
  for (const bool leaves : {true, false}) {  // those that leave first: their time is short
    for (int stage = 0; stage < static_cast<int>(round_->keeper.size()); ++stage) {
      if (leaving.contains(stage) != leaves) continue;
      const int keeper = round_->keeper[static_cast<std::size_t>(stage)];
      if (keeper >= 0) round_->copies[keeper].push_back(stage);
      if (keeper >= 0 || !leaves) continue;
      round_->not_copied = "more workers leave than the others can keep copies of";
    }
  }
  for (const auto& [keeper, stages] : round_->copies) order_next_copy(keeper, effects);
  return !round_->waiting.empty();
}

void SnapshotRounds::order_next_copy(int keeper, Effects& effects) {
  const auto stage = static_cast<std::size_t>(round_->copies.at(keeper).front());
  const int index = round_->workers[static_cast<std::size_t>(keeper)];
  round_->waiting.insert(index);
  effects.send.emplace_back(
      index,
      protocol::Save{
          .step = round_->step, .replicas = {}, .snapshot = true, .copy = round_->sources[stage]});
}

bool SnapshotRounds::copied(int index, Effects& effects) {
  const int keeper = stage_of(index);
  std::deque<int>& stages = round_->copies[keeper];
  stages.pop_front();
  if (!stages.empty()) order_next_copy(keeper, effects);
  return stages.empty();
}

int SnapshotRounds::stage_of(int index) const {
  return static_cast<int>(std::ranges::find(round_->workers, index) - round_->workers.begin());
}

bool SnapshotRounds::replace_keeper(int index, const Members& members, Effects& effects) {
  if (round_->leaving.empty()) return false;
  const int failed = stage_of(index);
  const std::set<int> leaving = stages_that_leave(members);
  round_->failed.insert(failed);
  const std::vector<int> next = keepers_that_stay(round_->keeper, nodes_, leaving, round_->failed);
  const std::deque<int> stages = std::exchange(round_->copies[failed], {});
  const auto lacks = [&](int stage) {
    return next[static_cast<std::size_t>(stage)] < 0 && leaving.contains(stage);
  };
  if (std::ranges::any_of(stages, lacks)) return false;
  round_->waiting.erase(index);
  for (const int stage : stages) {
    const int keeper = next[static_cast<std::size_t>(stage)];
    round_->keeper[static_cast<std::size_t>(stage)] = keeper;
    if (keeper < 0) continue;
    std::deque<int>& others = round_->copies[keeper];
    others.push_back(stage);
    if (others.size() == 1) order_next_copy(keeper, effects);
  }
  return true;
}

// Snapshots of their own are worth more to the ranks than none.
void SnapshotRounds::on_copy_failed(int index, const protocol::Saved& saved, const Members& members,
                                    Effects& effects) {
  ++failed_copies_;
  const std::string reason = worker(index) + ": " + saved.error;
  const bool hopeless =
      saved.trouble == protocol::SaveTrouble::kFull || failed_copies_ >= kMostFailedCopies;
  if (policy_.copies == NeighborCopies::kOn || !hopeless) return fail(reason, members, effects);
  no_copies_ = reason;
  effects.warnings.push_back("snapshots: no copies on neighbors in this generation: " + reason);
  whole(members, effects);
}

void SnapshotRounds::whole(const Members& members, Effects& effects) {
  const bool copied = round_->copying && no_copies_.empty();
  if (copied) failed_copies_ = 0;
  pace(members);
  std::string state = "each " + std::to_string(interval_) + " steps";
  if (copied) state += ", with copies on neighbors";
  if (copied && neighbors_.on_same_node > 0) {
    const int first = round_->workers[static_cast<std::size_t>(neighbors_.least_protected)];
    state += " (" + std::to_string(neighbors_.on_same_node) + " of " +
             std::to_string(neighbors_.keeper.size()) +
             " on the node of their worker, as that of " + members.find(first)->member.pod + ")";
  }
  if (!no_copies_.empty()) state += ", without copies on neighbors: " + no_copies_;
  if (interval_ > policy_.every_steps) state += ", since more would cost over 1 % of the time";
  const bool first = !std::exchange(told_, true);
  if (std::exchange(state_, state) != state || first) {
    effects.notes.push_back("all ranks have snapshots" + std::string(copied ? " and copies" : "") +
                            " of step " + std::to_string(round_->step));
  }
  if (!copied) round_->not_copied = no_copies_;
  whole_step_ = round_->step;
  close("", members, effects, copied && a_copy_leaves(members));
}

// Small changes keep the interval.
void SnapshotRounds::pace(const Members& members) {
  double step = 0;
  for (const auto& [index, state] : members.all()) {
    if (state.status) step = std::max(step, state.status->step_seconds);
  }
  const double least =
      step > 0 ? std::min((round_->seconds + round_->copy_seconds) / (kShare * step), kMostSteps)
               : 0;
  const auto steps = static_cast<std::int64_t>(std::ceil(least));
  const std::int64_t wanted = std::max(policy_.every_steps, steps);
  if (wanted > interval_) interval_ = wanted + wanted / 4;
  if (2 * wanted < interval_) interval_ = wanted;
}

void SnapshotRounds::close(const std::string& error, const Members& members, Effects& effects,
                           bool again) {
  const Round round = *std::exchange(round_, std::nullopt);
  for (const auto& [index, state] : members.all()) {
    if (!state.connected()) continue;
    const bool leaves = !again && round.leaving.contains(state.session);
    effects.send.emplace_back(
        index, protocol::Saved{.step = round.step,
                               .error = leaves && error.empty() ? round.not_copied : error,
                               .leave = leaves,
                               .files = {},
                               .snapshot = true});
  }
  if (!again) served_.insert(round.leaving.begin(), round.leaving.end());
}

void SnapshotRounds::fail(const std::string& error, const Members& members, Effects& effects) {
  interval_ = std::min(2 * interval_, kLongestInterval * policy_.every_steps);
  state_ = "none of step " + std::to_string(round_->step) + ": " + error;
  effects.warnings.push_back("snapshots: " + state_ + "; the next ones come " +
                             std::to_string(interval_) + " steps later");
  close(error, members, effects);
}

}  // namespace weir::coordinator
