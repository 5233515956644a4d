// SPDX-License-Identifier: Apache-2.0
// A generation after a failure in PlanSwitch: what the members hold, and the plan's state from
// that. Keep, if every rank holds its layers at the recovery point, else Move with the holders: a
// new process takes the state of its peer in another replica. COMMIT names the history that its GO
// begins. State of an older history, which a rank brings back that was away, is never mixed with
// what the others have done since.
#include <algorithm>

#include "worker/base/text.h"
#include "worker/base/units.h"
#include "worker/coordinator/cover.h"
#include "worker/coordinator/kept_sums.h"
#include "worker/coordinator/plan_switch.h"

namespace weir::coordinator {
namespace {

constexpr auto kAskAgain = std::chrono::seconds(1);
constexpr double kStepsToTell = 2, kMostSeconds = 1e7;  // a rank tells between two ops
constexpr std::int64_t kStepsSoonRepeated = 1;          // sooner than a silent rank is waited for
// Ranks find a new coordinator one after another.
constexpr auto kOthersCome = std::chrono::seconds(3);

// Long enough for the steps that were done before the failure.
std::chrono::nanoseconds time_to_tell(const Members& members, std::chrono::nanoseconds least) {
  for (const auto& [index, state] : members.all()) {
    const double step = state.step_seconds;
    const double longest = std::min(kMostSeconds, kStepsToTell * step);
    if (step > 0) least = std::max(least, from_seconds(longest));
  }
  return least;
}

}  // namespace

// Replicas that average, and ranks that may hold models of their own, go by their steps (can_keep).
bool PlanSwitch::recovers() const {
  const schedule::Plan& plan = attempt_->plan;
  if (plan.state == schedule::StateMove::kCheckpoint || (base_ && !broken_)) return false;
  return !schedule::averages(plan) && !apart_;
}

bool PlanSwitch::runs_already(const Members& members) const {
  return std::ranges::any_of(members.all(), [&](const auto& entry) {
    const MemberState& state = entry.second;
    const std::uint32_t revision = attempt_->plan.revision;
    return state.connected() &&
           (state.revision == revision || state.inventory.revision == revision);
  });
}

bool PlanSwitch::told(const MemberState& state) const {
  const auto before = told_before_.find(state.member.worker_index);
  const bool since = before == told_before_.end() || state.told > before->second;
  return since && !state.inventory.running;
}

void PlanSwitch::note_told(const Members& members, bool idle_too) {
  const auto& ranks = attempt_->plan.ranks;
  for (const auto& [index, state] : members.all()) {
    const bool has_rank =
        std::ranges::any_of(ranks, [&](const auto& rank) { return rank.pod == state.member.pod; });
    if (has_rank || idle_too) told_before_[index] = state.told;
  }
}

bool PlanSwitch::asks_longer(const std::vector<int>& missing, const Members& members,
                             SteadyTime now, Effects& effects) {
  const auto point = point_told(members);
  const std::int64_t start = std::max(point ? point->step : 0, checkpoint_step_);
  const bool repeats = std::ranges::any_of(missing, [&](int index) {
    const MemberState& state = *members.find(index);
    return state.revision != 0 && state.step > start + kStepsSoonRepeated;
  });
  if (!repeats) return false;
  Attempt& attempt = *attempt_;
  if (!attempt.asks_longer_until) {
    attempt.asks_longer_until = now + progress_deadline_;
    effects.notes.push_back("the start waits for worker " + joined(missing, ", ") +
                            " to tell what it holds: without it, steps after step " +
                            std::to_string(start) + " would be done again");
  }
  return now < *attempt.asks_longer_until;
}

bool PlanSwitch::silent(const MemberState& state) const {
  const auto since = silent_.find(state.member.worker_index);
  return since != silent_.end() && since->second == state.told;
}

bool PlanSwitch::has_silent(const schedule::Plan& plan, const Members& members) const {
  return std::ranges::any_of(plan.ranks, [&](const schedule::RankPlace& rank) {
    const MemberState* const state = members.by_pod(rank.pod);
    return state != nullptr && silent(*state);
  });
}

void PlanSwitch::leave_out_silent(std::set<int>& lost, const Members& members) const {
  for (const schedule::RankPlace& rank : attempt_->wanted.ranks) {
    const MemberState* const state = members.by_pod(rank.pod);
    if (state != nullptr && silent(*state)) lost.insert(rank.replica);
  }
}

bool PlanSwitch::give_up_silent(const Members& members, Effects& effects) {
  if (!recovers()) return false;
  std::vector<std::string> pods;
  for (const auto& [index, state] : members.all()) {
    if (!state.connected() || told(state) || silent(state)) continue;
    silent_[index] = state.told;
    pods.push_back(state.member.pod);
  }
  if (pods.empty()) return false;
  effects.notes.push_back(joined(pods, ", ") +
                          " counts as lost until it tells what it holds, for which it was asked");
  return true;
}

// The ranks of a generation that goes on may be in a long step.
void PlanSwitch::note_unprepared(const Members& members) {
  attempt_->unprepared = true;
  for (const int index : attempt_->waiting) {
    const MemberState& state = *members.find(index);
    const bool trains =
        training() != nullptr && std::ranges::find(base_->ranks, state.member.pod,
                                                   &schedule::RankPlace::pod) != base_->ranks.end();
    if (!trains) silent_[index] = state.told;
  }
}

// A rank tells by itself when it has dropped its step, or by its HELLO. One that trains although
// the generation is over, for a coordinator that has died, drops its step when it is asked. A rank
// that does not answer, as it would not answer PREPARE, counts as lost. But where a start without
// it would repeat what it has done, it gets as long as a rank may need for a step.
bool PlanSwitch::awaits_inventories(const Members& members, SteadyTime now, Effects& effects) {
  if (!recovers()) return false;
  std::vector<int> missing;
  bool asked_before = true;
  for (const auto& [index, state] : members.all()) {
    if (!state.connected() || (told(state) && !silent(state))) continue;
    missing.push_back(index);
    asked_before = asked_before && silent(state);
  }
  Attempt& attempt = *attempt_;
  if (missing.empty()) return false;
  if (!attempt.asks_until) {
    const auto limit = time_to_tell(members, time_to_answer(members));
    attempt.asks_until = asked_before ? now : now + limit;
    attempt.ask_at = now + (base_ ? kAskAgain : kAskAgain.zero());
  }
  if (now >= *attempt.asks_until && !asks_longer(missing, members, now, effects)) return false;
  if (now < *attempt.ask_at) return true;
  attempt.ask_at = now + kAskAgain;
  for (const int index : missing) {
    effects.send.emplace_back(
        index, protocol::PeerLost{.revision = attempt.plan.revision,
                                  .reason = "the coordinator asks for what this rank holds",
                                  .finish_part = true});
  }
  return true;
}

std::vector<MemberInventory> PlanSwitch::inventories(const Members& members) const {
  std::vector<MemberInventory> list;
  for (const auto& [index, state] : members.all()) {
    if (state.connected() && told(state) && !silent(state))
      list.push_back({index, state.inventory});
  }
  return list;
}

std::int64_t PlanSwitch::repeated(const Members& members) const {
  std::int64_t reached = 0;
  for (const auto& [index, state] : members.all()) {
    reached = std::max(reached, state.step);
    for (const protocol::Held& held : state.inventory.held) reached = std::max(reached, held.step);
  }
  const std::int64_t start =
      attempt_->point ? attempt_->step : std::max<std::int64_t>(checkpoint_step_, 0);
  return std::max<std::int64_t>(reached - start, 0);
}

bool PlanSwitch::others_may_come(const Members& members, SteadyTime now) const {
  if (base_ || now >= members.last_change() + kOthersCome) return false;
  return std::ranges::any_of(attempt_->wanted.ranks, [&](const schedule::RankPlace& rank) {
    const MemberState* const member = members.by_pod(rank.pod);
    const bool missing = member == nullptr || !member->connected();
    return missing && (lost_pod_uid_.empty() || rank.pod_uid != lost_pod_uid_);
  });
}

std::optional<schedule::Plan> PlanSwitch::cover(const Members& members, SteadyTime now) {
  Attempt& attempt = *attempt_;
  const bool broke = base_ ? broken_ : runs_already(members);
  if (!broke || cover_refused_ || !patient() || !recovers()) return std::nullopt;
  if (others_may_come(members, now)) return std::nullopt;
  bool leaves_only = false;
  std::set<int> lost = replicas_that_lack_ranks(attempt.wanted, members, leaves_only);
  const bool lacks = !lost.empty();
  if (!lacks && !holds_point(members)) return std::nullopt;  // nobody has trained yet
  dead_.leave_out(lost, attempt.wanted, members);
  leave_out_silent(lost, members);
  const int missing = static_cast<int>(lost.size());
  const int living = attempt.wanted.replica_count() - missing;
  if (missing == 0 || living == 0) return std::nullopt;
  if (!attempt.cover_at && lacks) {
    attempt.cover_at =
        now + wait_before_cover(longest_step(attempt.wanted, members), living, missing);
  }
  if (lacks && now < *attempt.cover_at && !leaves_only) return std::nullopt;
  attempt.covered = std::move(lost);
  return without_replicas(attempt.wanted, attempt.covered);
}

void PlanSwitch::on_unanswered(int index, const protocol::Unanswered& unanswered,
                               const Members& members, SteadyTime now, Effects& effects) {
  const std::string before = dead_.text(members);
  if (!dead_.add(index, unanswered, members, now)) return;
  if (std::string text = dead_.text(members); text != before) {
    effects.notes.push_back(std::move(text));
  }
  if (phase_ == Phase::kLoading && !attempt_->ends_at) attempt_->ends_at = now + kOthersFind;
}

// Training goes on meanwhile, which it would not while the ranks of the plan meet in vain.
void PlanSwitch::await_answers(const schedule::Plan& plan, const Members& members, SteadyTime now,
                               Effects& effects) {
  for (auto& probe : dead_.probes(plan, members, now)) effects.send.push_back(std::move(probe));
  if (attempt_->deadline && now >= *attempt_->deadline) {
    std::string why = dead_.text(members);
    for (const schedule::RankPlace& rank : plan.ranks) {
      const MemberState* const state = members.by_pod(rank.pod);
      if (state != nullptr && silent(*state)) why = "pod " + rank.pod + " does not answer";
    }
    give_up(protocol::Outcome::kRefused, why, members, now, effects);
  }
}

std::optional<RecoveryPoint> PlanSwitch::point_told(const Members& members) const {
  return recovery_point(inventories(members), attempt_->plan.stages.back().last + 1);
}

bool PlanSwitch::holds_point(const Members& members) const {
  const auto point = point_told(members);
  return point && point->step >= checkpoint_step_;
}

std::vector<protocol::KeptIds> PlanSwitch::sums_at_point(const Members& members) const {
  const Attempt& attempt = *attempt_;
  std::vector<const protocol::Held*> begins_with;
  for (const schedule::RankPlace& rank : attempt.plan.ranks) {
    const MemberState* const member = members.by_pod(rank.pod);
    if (member == nullptr || !member->keeps_sums) return {};
    const schedule::LayerRange layers = attempt.plan.stages[static_cast<std::size_t>(rank.stage)];
    const RecoveryPoint::Holder live{.member = member->member.worker_index, .layers = layers};
    const bool holds =
        std::ranges::find(attempt.point->holders, live) != attempt.point->holders.end();
    const auto held = std::ranges::find_if(member->inventory.held, [&](const protocol::Held& one) {
      return !one.snapshot && !one.copy && one.first == layers.first && one.last == layers.last;
    });
    const bool has = holds && held != member->inventory.held.end();
    begins_with.push_back(has ? &*held : nullptr);
  }
  return kept_sums(attempt.plan, attempt.step, begins_with);
}

bool PlanSwitch::take_point(const Members& members) {
  Attempt& attempt = *attempt_;
  schedule::Plan& plan = attempt.plan;
  std::optional<RecoveryPoint> point = point_told(members);
  if (!point || point->step < checkpoint_step_) {
    attempt.no_point = point ? "the checkpoint is newer than what the workers hold"
                             : why_no_point(inventories(members), plan.stages.back().last + 1);
    return false;
  }
  const auto holds = [&](const schedule::RankPlace& rank) {
    const MemberState* const member = members.by_pod(rank.pod);
    const schedule::LayerRange layers = plan.stages[static_cast<std::size_t>(rank.stage)];
    return member != nullptr &&
           std::ranges::any_of(point->holders, [&](const RecoveryPoint::Holder& holder) {
             return !holder.copy && holder.member == member->member.worker_index &&
                    holder.layers == layers;
           });
  };
  attempt.step = point->step;
  if (std::ranges::all_of(plan.ranks, holds)) {
    plan.state = schedule::StateMove::kKeep;
    attempt.point = std::move(point);
    attempt.kept = sums_at_point(members);
    return true;
  }
  plan.state = schedule::StateMove::kMove;
  for (const RecoveryPoint::Holder& holder : point->holders) {
    const protocol::Member& member = members.find(holder.member)->member;
    const auto rank = std::ranges::find(plan.ranks, member.pod, &schedule::RankPlace::pod);
    const bool placed = rank != plan.ranks.end();
    if (!placed && member.ips.empty()) continue;
    plan.holders.push_back({.pod = member.pod,
                            .pod_uid = member.pod_uid,
                            .ip = placed ? rank->ip : member.ips.front(),
                            .node = member.node,
                            .data_port = member.data_port,
                            .replica = placed ? rank->replica : 0,
                            .stage = placed ? rank->stage : 0,
                            .layers = holder.layers,
                            .copy = holder.copy});
  }
  attempt.point = std::move(point);
  attempt.kept = sums_at_point(members);
  return true;
}

}  // namespace weir::coordinator
