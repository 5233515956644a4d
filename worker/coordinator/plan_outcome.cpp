// SPDX-License-Identifier: Apache-2.0
// The second half of PlanSwitch: answers of ranks, the end of a switch, and the rejoin of a broken
// generation.
#include <algorithm>
#include <utility>

#include "worker/base/text.h"
#include "worker/coordinator/plan_switch.h"

namespace weir::coordinator {
namespace {

using namespace std::chrono_literals;

// After this many steps and this much time with the old plan, a rank has missed the COMMIT. A stage
// reads the epoch from the first message of its next step.
constexpr std::int64_t kLateSteps = 4;
constexpr auto kLateTime = 10s;  // as long as for PREPARE

const schedule::RankPlace* rank_of(const schedule::Plan* plan, const MemberState* state) {
  if (plan == nullptr || state == nullptr) return nullptr;
  const auto found = std::ranges::find_if(plan->ranks, [&](const schedule::RankPlace& rank) {
    return rank.pod == state->member.pod && rank.pod_uid == state->member.pod_uid;
  });
  return found == plan->ranks.end() ? nullptr : &*found;
}

}  // namespace

Effects PlanSwitch::on_message(int index, const protocol::Message& message, const Members& members,
                               SteadyTime now) {
  Effects effects;
  if (const auto* ready = std::get_if<protocol::Ready>(&message)) {
    on_ready(index, *ready, members, now, effects);
  } else if (const auto* reject = std::get_if<protocol::Reject>(&message)) {
    on_reject(index, *reject, members, now, effects);
  } else if (const auto* state = std::get_if<protocol::ReadyState>(&message)) {
    on_ready_state(index, *state, members, now, effects);
  } else if (const auto* moved = std::get_if<protocol::Moved>(&message)) {
    if (phase_ == Phase::kLoading && moved->revision == attempt_->plan.revision) {
      attempt_->moved_bytes += moved->bytes;
    }
  } else if (const auto* status = std::get_if<protocol::StageStatus>(&message)) {
    on_status(index, *status, members, now, effects);
  } else if (const auto* lost = std::get_if<protocol::PeerLost>(&message)) {
    on_peer_lost(index, *lost, members, now, effects);
  } else if (const auto* unanswered = std::get_if<protocol::Unanswered>(&message)) {
    on_unanswered(index, *unanswered, members, now, effects);
  } else if (const auto* probed = std::get_if<protocol::Probed>(&message)) {
    dead_.probed(index, *probed);
  }
  return effects;
}

void PlanSwitch::on_ready(int index, const protocol::Ready& ready, const Members& members,
                          SteadyTime now, Effects& effects) {
  if (phase_ != Phase::kPreparing || ready.revision != attempt_->plan.revision ||
      ready.incarnation != attempt_->incarnation) {
    return;  // answer to an abandoned attempt
  }
  attempt_->waiting.erase(index);
  if (attempt_->waiting.empty()) commit(members, now, effects);
}

void PlanSwitch::on_reject(int index, const protocol::Reject& reject, const Members& members,
                           SteadyTime now, Effects& effects) {
  if (phase_ != Phase::kPreparing || reject.revision != attempt_->plan.revision ||
      reject.incarnation != attempt_->incarnation) {
    return;
  }
  const auto* state = members.find(index);
  give_up(protocol::Outcome::kRefused,
          (state ? state->member.pod : "worker " + std::to_string(index)) + ": " + reject.reason,
          members, now, effects);
}

void PlanSwitch::on_ready_state(int index, const protocol::ReadyState& state,
                                const Members& members, SteadyTime now, Effects& effects) {
  const bool committed = phase_ == Phase::kLoading || phase_ == Phase::kApplying;
  if (!committed || state.revision != attempt_->plan.revision) return;
  if (!state.error.empty()) {
    const auto* member = members.find(index);
    const auto* rank = rank_of(base(), member);
    const auto* source = phase_ == Phase::kLoading ? holder(member) : nullptr;
    if (rank == nullptr && source == nullptr) return;
    generation_lost(-1,
                    {.replica = rank != nullptr ? rank->replica : source->replica,
                     .stage = rank != nullptr ? rank->stage : source->stage,
                     .revision = state.revision,
                     .reason = member->member.pod + ": " + state.error},
                    members, now, effects);
    return;
  }
  if (phase_ != Phase::kLoading) return;
  attempt_->waiting.erase(index);
  if (!attempt_->waiting.empty()) return;
  for (const auto& rank : attempt_->plan.ranks) {
    if (const auto* member = members.by_pod(rank.pod)) {
      attempt_->waiting.insert(member->member.worker_index);
    }
  }
  to_ranks(attempt_->plan, protocol::Go{state.revision}, members, effects);
  to_idle(protocol::Go{state.revision}, members, effects);
  go(members, now, effects);
}

void PlanSwitch::on_status(int index, const protocol::StageStatus& status, const Members& members,
                           SteadyTime now, Effects& effects) {
  if (phase_ != Phase::kApplying) return;
  if (status.epoch < attempt_->plan.revision) {
    // Replicas that average continue at the step of the fastest, so one long step may raise the
    // step by many.
    const bool jumps = base_ && schedule::averages(*base_);
    const bool late = !attempt_->new_generation && !jumps &&
                      status.step > attempt_->due_step + kLateSteps &&
                      now - attempt_->committed_at >= kLateTime;
    if (!attempt_->waiting.contains(index)) return;
    if (late) return not_applied(members, now, effects);
    attempt_->deadline = now + time_to_apply(members);  // the rank makes progress
    return;
  }
  if (attempt_->waiting.erase(index) == 0) return;
  const std::int64_t before = status.step - 1;  // this STATUS reports the first step of the epoch
  attempt_->first_step = std::min(attempt_->first_step.value_or(before), before);
  if (attempt_->waiting.empty()) applied(members, now, effects);
}

std::string PlanSwitch::silent_pods(const Members& members) const {
  return joined(attempt_->waiting, ", ", [&](int index) {
    const auto* state = members.find(index);
    return state ? state->member.pod : "?";
  });
}

// After COMMIT the old plan cannot return: the ranks connect again, with the new plan.
void PlanSwitch::not_applied(const Members& members, SteadyTime now, Effects& effects) {
  generation_lost(-1,
                  {.replica = -1,
                   .revision = attempt_->plan.revision,
                   .reason = "plan " + std::to_string(attempt_->plan.revision) +
                             " was not taken up after COMMIT by " + silent_pods(members)},
                  members, now, effects);
}

void PlanSwitch::applied(const Members& members, SteadyTime now, Effects& effects) {
  applied_ = base_;
  dead_.met(*base_, members);
  // Otherwise all replicas have met before the first step of the plan.
  apart_ = schedule::averages(*base_);
  failed_rejoins_ = 0;
  failed_join_.reset();
  lost_since_.clear();
  cover_refused_ = false;
  if (covered_.empty()) failed_joins_ = 0;
  gone_ = covered_.empty() ? lost_ : covered_;
  if (!attempt_->new_generation && attempt_->first_step) {
    compressed_.change(*attempt_->first_step, !base_->codecs.raw());
  }
  const bool tells = attempt_->rejoin && attempt_->no_point.empty();
  report(protocol::Outcome::kApplied,
         !tells ? attempt_->no_point
                : (covered_.empty() ? "joined again" : "the others go on") +
                      (", incarnation " + std::to_string(attempt_->incarnation)),
         effects);
  phase_ = Phase::kIdle;
  attempt_.reset();
  if (next_) {
    begin(*std::exchange(next_, std::nullopt), false, members, now, effects);
  } else if (reduced()) {
    rejoin(members, now, effects);
  }
}

// All replicas are needed between COMMIT and GO of a new generation, and at the last step, where
// all end with one model.
bool PlanSwitch::lose_replica(int except, const schedule::RankPlace* rank,
                              const protocol::PeerLost& lost, const Members& members,
                              Effects& effects) {
  const bool survivable = rank != nullptr && base_ && !broken_ && phase_ != Phase::kLoading &&
                          schedule::averages(*base_);
  if (!survivable) return false;
  std::set<int> gone = lost_;
  gone.insert(rank->replica);
  std::int64_t highest = 0;
  for (const schedule::RankPlace& other : base_->ranks) {
    const auto* member = members.by_pod(other.pod);
    if (member != nullptr) highest = std::max(highest, member->step);
  }
  const bool nobody = gone.size() == base_->micro_batches.size() || highest >= total_steps_;
  if (nobody) return false;
  const int replica = rank->replica;
  if (!lost_.insert(replica).second) return true;
  gone_ = lost_;
  effects.notes.push_back("plan " + std::to_string(base_->revision) + " goes on without replica " +
                          std::to_string(replica) + ": " + lost.reason);
  to_replica(replica, lost, members, effects, except);
  if (phase_ == Phase::kApplying) {
    for (const schedule::RankPlace& other : base_->ranks) {
      const auto* member = other.replica == replica ? members.by_pod(other.pod) : nullptr;
      if (member != nullptr) attempt_->waiting.erase(member->member.worker_index);
    }
  }
  return true;
}

void PlanSwitch::to_replica(int replica, const protocol::Message& message, const Members& members,
                            Effects& effects, int except) const {
  for (const schedule::RankPlace& rank : base_->ranks) {
    const auto* member = rank.replica == replica ? members.by_pod(rank.pod) : nullptr;
    if (member == nullptr || !member->connected()) continue;
    const int index = member->member.worker_index;
    if (index != except) effects.send.emplace_back(index, message);
  }
}

Effects PlanSwitch::on_lost(int index, const std::string& reason, const Members& members,
                            SteadyTime now) {
  Effects effects;
  const auto* state = members.find(index);
  if (state == nullptr) return effects;
  cover_refused_ = false;
  const auto* of_base = rank_of(base(), state);
  protocol::PeerLost lost{.reason = "pod " + state->member.pod + " lost: " + reason};
  if (of_base != nullptr) {
    lost.replica = of_base->replica;
    lost.stage = of_base->stage;
    lost.revision = base_->revision;
  }
  const bool newcomer = of_base != nullptr && gone_.contains(of_base->replica);
  const bool committed = phase_ == Phase::kLoading || phase_ == Phase::kApplying;
  if (phase_ == Phase::kIdle || committed) {
    const bool source = phase_ == Phase::kLoading && holder(state) != nullptr;
    if (source || (of_base != nullptr && (committed || !broken_))) {
      replica_lost(index, of_base, lost, members, now, effects);
    }
    if (of_base != nullptr) forgive(index, newcomer, members, now, effects);
    return effects;
  }
  const bool breaks =
      of_base != nullptr && !broken_ && !lose_replica(index, of_base, lost, members, effects);
  if (breaks) {
    broken_ = true;
    lost_.clear();
    attempt_->not_before = now;
    to_ranks(*base_, lost, members, effects, index);
  }
  if (phase_ == Phase::kGathering && of_base != nullptr) {
    // Another loss before: its other ranks finish their part of the step in vain.
    if (!breaks && broken_) to_replica(of_base->replica, lost, members, effects, index);
    forgive(index, newcomer, members, now, effects);
  }
  if (phase_ != Phase::kPreparing) return effects;
  if (rank_of(&attempt_->plan, state) == nullptr) {
    if (breaks || holder(state) != nullptr) prepare_again(members, now, effects);
    return effects;
  }
  if (patient() && !attempt_->rejoin) {  // its pods return, or a newer revision comes
    to_ranks(attempt_->plan, protocol::Abort{attempt_->plan.revision}, members, effects);
    report(protocol::Outcome::kAborted, lost.reason + ", before COMMIT", effects);
    begin(schedule::Plan(attempt_->wanted), false, members, now, effects);
  } else if (attempt_->rejoin && broken_ && attempt_->wanted.replica_count() > 1) {
    prepare_again(members, now, effects);  // others may go on without it
  } else {
    give_up(protocol::Outcome::kAborted, lost.reason + ", before COMMIT", members, now, effects);
  }
  return effects;
}

void PlanSwitch::on_peer_lost(int index, const protocol::PeerLost& lost, const Members& members,
                              SteadyTime now, Effects& effects) {
  const auto* of_base = rank_of(base(), members.find(index));
  if (of_base == nullptr) return;
  switch (phase_) {
    case Phase::kLoading:
      // Before its READY_STATE, a rank reports about the old generation.
      if (attempt_->waiting.contains(index)) return;
      generation_lost(index, lost, members, now, effects);
      return;
    case Phase::kIdle:
      if (broken_) return;
      [[fallthrough]];
    case Phase::kApplying:
      replica_lost(index, of_base, lost, members, now, effects);
      return;
    case Phase::kGathering:
    case Phase::kPreparing:
      if (broken_ || lost_.contains(of_base->replica)) return;
      if (!lose_replica(index, of_base, lost, members, effects)) {
        broken_ = true;
        lost_.clear();
        attempt_->not_before = now;
        to_ranks(*base_, lost, members, effects, index);
      }
      if (phase_ != Phase::kPreparing) return;
      if (patient()) {
        prepare_again(members, now, effects);
      } else {
        give_up(protocol::Outcome::kAborted, lost.reason, members, now, effects);
      }
      return;
  }
}

// The generation in force has broken, so the plan that is being prepared takes its state from
// elsewhere.
void PlanSwitch::prepare_again(const Members& members, SteadyTime now, Effects& effects) {
  to_ranks(attempt_->plan, protocol::Abort{attempt_->plan.revision}, members, effects);
  begin(schedule::Plan(attempt_->wanted), attempt_->rejoin, members, now, effects);
}

void PlanSwitch::give_up(protocol::Outcome outcome, const std::string& reason,
                         const Members& members, SteadyTime now, Effects& effects) {
  if (phase_ == Phase::kPreparing) {
    to_ranks(attempt_->plan, protocol::Abort{attempt_->plan.revision}, members, effects);
  }
  // The place of the lost rank is waited for instead, which need not come later for that.
  // Where ranks are silent, others may go on without them, too.
  const bool no_cover =
      !attempt_->covered.empty() && outcome == protocol::Outcome::kRefused && !attempt_->unprepared;
  cover_refused_ = cover_refused_ || no_cover;
  if (attempt_->rejoin) {
    if (!no_cover) count_failure();
    effects.notes.push_back("joining plan " + std::to_string(attempt_->plan.revision) +
                            " again failed: " + reason);
  } else {
    report(outcome, reason, effects);
  }
  phase_ = Phase::kIdle;
  attempt_.reset();
  if (base_ && (broken_ || reduced())) rejoin(members, now, effects);
}

void PlanSwitch::count_failure() {
  failed_join_ = attempt_->joins;
  ++(attempt_->joins ? failed_joins_ : failed_rejoins_);
}

// The ranks whose connections have ended may have told of the failure first, so it was counted.
void PlanSwitch::forgive(int index, bool newcomer, const Members& members, SteadyTime now,
                         Effects& effects) {
  const bool again = !lost_since_.insert(index).second;
  if (!failed_join_ || again || (*failed_join_ && newcomer)) return;
  --(*failed_join_ ? failed_joins_ : failed_rejoins_);
  failed_join_.reset();
  if (phase_ != Phase::kGathering || !attempt_->rejoin) return;
  attempt_->not_before = now;
  try_prepare(members, now, effects);
}

// For a loss after COMMIT or without a plan switch.
void PlanSwitch::replica_lost(int except, const schedule::RankPlace* rank,
                              const protocol::PeerLost& lost, const Members& members,
                              SteadyTime now, Effects& effects) {
  if (!lose_replica(except, rank, lost, members, effects)) {
    generation_lost(except, lost, members, now, effects);
  } else if (phase_ == Phase::kIdle) {
    rejoin(members, now, effects);
  } else if (attempt_->waiting.empty()) {
    applied(members, now, effects);
  }
}

void PlanSwitch::generation_lost(int except, const protocol::PeerLost& lost, const Members& members,
                                 SteadyTime now, Effects& effects) {
  effects.notes.push_back("generation of plan " + std::to_string(base_->revision) +
                          " broken: " + lost.reason);
  const Phase phase = std::exchange(phase_, Phase::kIdle);
  if (phase == Phase::kLoading) {
    to_ranks(*base_, protocol::Abort{base_->revision}, members, effects);
    // Idle members may hold layers that others fetch.
    to_idle(protocol::Abort{base_->revision}, members, effects);
  } else {
    to_ranks(*base_, lost, members, effects, except);
  }
  if (phase != Phase::kIdle) {
    if (phase == Phase::kLoading || attempt_->rejoin) count_failure();
    if (!attempt_->rejoin) report(protocol::Outcome::kAborted, lost.reason, effects);
  }
  broken_ = true;
  lost_.clear();
  attempt_.reset();
  if (next_) {
    begin(*std::exchange(next_, std::nullopt), false, members, now, effects);
  } else {
    rejoin(members, now, effects);
  }
}

void PlanSwitch::rejoin(const Members& members, SteadyTime now, Effects& effects) {
  schedule::Plan again = covered_.empty() ? *base_ : *whole_;
  again.state = schedule::StateMove::kKeep;  // if the ranks are still at the same step
  again.holders.clear();
  begin(again, true, members, now, effects);
}

void PlanSwitch::report(protocol::Outcome outcome, const std::string& reason,
                        Effects& effects) const {
  protocol::LastSwitch finished{.revision = attempt_->wanted.revision,
                                .outcome = outcome,
                                .step = attempt_->first_step.value_or(0),
                                .pause_seconds = attempt_->pause_seconds,
                                .reason = reason,
                                .moved_bytes = attempt_->moved_bytes};
  if (outcome == protocol::Outcome::kApplied) {
    finished.state = attempt_->plan.state;
    finished.repeated_steps = attempt_->repeated_steps;
    finished.incarnation = attempt_->incarnation;
    finished.snapshots = attempt_->point && std::ranges::any_of(attempt_->point->holders,
                                                                &RecoveryPoint::Holder::snapshot);
  }
  effects.finished.push_back(std::move(finished));
}

}  // namespace weir::coordinator
