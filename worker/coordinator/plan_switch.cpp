// SPDX-License-Identifier: Apache-2.0
// The first half of PlanSwitch: from a plan to COMMIT. Answers and failures of ranks:
// plan_outcome.cpp.
#include "worker/coordinator/plan_switch.h"

#include <algorithm>
#include <utility>

#include "worker/base/text.h"
#include "worker/schedule/step_ids.h"
#include "worker/schedule/validate.h"

namespace weir::coordinator {
namespace {

constexpr int kStepsToAnswer = 2;  // the running step, and one more for a rank that is slower
// In band, up to three steps pass.
constexpr int kStepsToApply = 4;

// True if both plans compute the same in a step, so that the switch can happen at any step.
bool same_step(const schedule::Plan& a, const schedule::Plan& b) {
  return a.micro_batches == b.micro_batches && a.sync.mode == b.sync.mode &&
         a.schedule.micro_batch_size == b.schedule.micro_batch_size;
}

std::vector<const MemberState*> states_of(const schedule::Plan& plan, const Members& members) {
  std::vector<const MemberState*> result;
  for (const auto& rank : plan.ranks) {
    if (const auto* member = members.by_pod(rank.pod)) result.push_back(member);
  }
  return result;
}

// E.g. "replica 1", "replicas 0, 2".
std::string replicas_text(const std::set<int>& replicas) {
  return (replicas.size() == 1 ? "replica " : "replicas ") +
         joined(replicas, ", ", [](int one) { return std::to_string(one); });
}

// E.g. ", with the sums of 12 micro-batches of its first step".
std::string kept_text(const std::vector<protocol::KeptIds>& kept) {
  int count = 0;
  for (const protocol::KeptIds& one : kept) count += schedule::count_of(one.ids);
  if (count == 0) return "";
  return ", with the sums of " + std::to_string(count) + " micro-batches of its first step";
}

std::int64_t highest_step(const schedule::Plan& plan, const Members& members) {
  std::int64_t step = 0;
  for (const auto* state : states_of(plan, members)) step = std::max(step, state->step);
  return step;
}

// True if all ranks hold state after the same number of steps, so that nothing has to be loaded.
bool stand_together(const schedule::Plan& plan, const Members& members) {
  const auto states = states_of(plan, members);
  return !states.empty() && std::ranges::all_of(states, [&](const MemberState* state) {
    return state->revision != 0 && state->step == states.front()->step;
  });
}

}  // namespace

Effects PlanSwitch::on_plan(const schedule::Plan& plan, const Members& members, SteadyTime now) {
  Effects effects;
  if (plan.revision <= highest_seen_) return effects;
  highest_seen_ = plan.revision;
  if (phase_ == Phase::kLoading || phase_ == Phase::kApplying) {
    next_ = plan;
    effects.notes.push_back("plan " + std::to_string(plan.revision) +
                            " waits for the end of the switch under way");
    return effects;
  }
  if (phase_ == Phase::kPreparing) {
    to_ranks(attempt_->plan, protocol::Abort{attempt_->plan.revision}, members, effects);
  }
  if (phase_ != Phase::kIdle && !attempt_->rejoin) {
    report(protocol::Outcome::kAborted, "superseded by revision " + std::to_string(plan.revision),
           effects);
  }
  begin(plan, false, members, now, effects);
  return effects;
}

void PlanSwitch::begin(const schedule::Plan& wanted, bool rejoin, const Members& members,
                       SteadyTime now, Effects& effects) {
  attempt_ = Attempt{.wanted = wanted, .plan = wanted, .rejoin = rejoin};
  phase_ = Phase::kGathering;
  if (!patient()) {
    attempt_->deadline = now + std::chrono::seconds(wanted.prepare_timeout_seconds);
  }
  const bool joins = !covered_.empty() && !broken_;
  const int failures = joins ? failed_joins_ : failed_rejoins_;
  if (rejoin && failures > 0) {
    constexpr int kMaxDoublings = 5;  // 1, 2, 4 .. 32 s
    attempt_->not_before = now + std::chrono::seconds(1 << std::min(failures - 1, kMaxDoublings));
  }
  try_prepare(members, now, effects);
}

bool PlanSwitch::patient() const {
  const auto trigger = attempt_->wanted.trigger;
  return attempt_->rejoin || !base_ || trigger == schedule::Trigger::kInitial ||
         trigger == schedule::Trigger::kRestart;
}

std::chrono::nanoseconds PlanSwitch::time_to_answer(const Members& members) const {
  const std::chrono::nanoseconds least =
      std::chrono::seconds(attempt_->plan.prepare_timeout_seconds);
  if (!base_ || broken_) return least;  // no rank is computing
  return std::max(least, kStepsToAnswer * longest_step(attempt_->plan, members));
}

std::chrono::nanoseconds PlanSwitch::time_to_apply(const Members& members) const {
  const auto step = longest_step(attempt_->plan, members);
  // The duration of a step is unknown.
  if (step.count() == 0) return kStepsToApply * progress_deadline_;
  return std::max(progress_deadline_, kStepsToApply * step);
}

void PlanSwitch::try_prepare(const Members& members, SteadyTime now, Effects& effects) {
  if (now < attempt_->not_before) return;
  attempt_->plan = attempt_->wanted;
  const bool ran = !base_ && runs_already(members);
  if (ran) attempt_->plan.state = schedule::StateMove::kRecover;
  attempt_->covered.clear();
  auto filled = fill_plan(attempt_->wanted, job_uid_, members);
  const bool dead = filled && dead_.within(*filled, members);
  const bool silent = filled && has_silent(*filled, members);
  if ((dead || silent) && base_ && !broken_) return await_answers(*filled, members, now, effects);
  if (dead && !dead_.settled(now)) return;
  if (dead || silent || (!filled && filled.error().code == Code::kUnavailable)) {
    if (auto without = cover(members, now)) {
      filled = fill_plan(*std::move(without), job_uid_, members);
    }
  }
  if (!filled && filled.error().code == Code::kUnavailable) {
    if (attempt_->deadline && now >= *attempt_->deadline) {
      give_up(protocol::Outcome::kRefused, filled.error().message, members, now, effects);
    }
    return;
  }
  const auto broken =
      filled ? joined(schedule::broken_rules(*filled, layers_), "; ") : filled.error().message;
  if (!broken.empty()) {
    give_up(protocol::Outcome::kRefused, broken, members, now, effects);
    return;
  }
  attempt_->plan = *std::move(filled);
  if (ran) attempt_->plan.state = schedule::StateMove::kRecover;
  if (attempt_->plan.state == schedule::StateMove::kRecover) {
    const bool lives = base_ && !broken_;
    attempt_->plan.state = lives ? schedule::StateMove::kMove : schedule::StateMove::kKeep;
  }
  if (awaits_inventories(members, now, effects)) return;
  if (give_up_silent(members, effects)) return try_prepare(members, now, effects);
  if (!attempt_->covered.empty() && !holds_point(members)) return;  // the absent may hold more
  attempt_->joins = !covered_.empty() && !broken_;
  attempt_->incarnation = next_incarnation(members);
  attempt_->new_generation =
      broken_ || reduced() ||
      schedule::starts_generation(base(), attempt_->plan, attempt_->incarnation);
  // The remaining replicas hold the whole state, so the new plan takes it from them, whatever it
  // says.
  if (reduced()) attempt_->plan.state = schedule::StateMove::kMove;
  const auto unmovable = find_holders(members);
  if (!unmovable.empty()) {
    give_up(protocol::Outcome::kRefused, unmovable, members, now, effects);
    return;
  }
  if (attempt_->joins && boundary(members) >= total_steps_) return;  // it is too late
  last_prepared_ = {attempt_->plan.revision, attempt_->incarnation};
  decide_state(members);
  phase_ = Phase::kPreparing;
  attempt_->prepared_at = now;
  attempt_->deadline = now + time_to_answer(members);
  attempt_->waiting.clear();
  for (const auto* state : states_of(attempt_->plan, members)) {
    attempt_->waiting.insert(state->member.worker_index);
  }
  to_ranks(attempt_->plan,
           protocol::Prepare{.plan = attempt_->plan, .incarnation = attempt_->incarnation}, members,
           effects);
  to_idle(protocol::Prepare{.plan = attempt_->plan, .incarnation = attempt_->incarnation}, members,
          effects);
  effects.notes.push_back(
      "PREPARE of plan " + std::to_string(attempt_->plan.revision) + " incarnation " +
      std::to_string(attempt_->incarnation) +
      (attempt_->new_generation ? ", new generation" : ", in band") +
      (attempt_->covered.empty() ? "" : ", without " + replicas_text(attempt_->covered)));
}

// A new revision starts at incarnation 0, a rejoin adds 1. A plan of an in-band tier starts
// at 1 if the generation is broken or has lost replicas, or if a new coordinator finds ranks with
// state: an incarnation above 0 makes the ranks connect again.
int PlanSwitch::next_incarnation(const Members& members) const {
  const auto& plan = attempt_->plan;
  int highest = last_prepared_.first == plan.revision ? last_prepared_.second : -1;
  bool state_elsewhere = base_ && (broken_ || reduced());
  for (const auto* state : states_of(plan, members)) {
    if (!base_ && state->revision != 0) state_elsewhere = true;
    if (state->revision == plan.revision) highest = std::max(highest, state->incarnation);
    const protocol::Inventory& told = state->inventory;
    if (told.revision == plan.revision) highest = std::max(highest, told.incarnation);
  }
  if (highest >= 0) return highest + 1;
  return state_elsewhere && schedule::in_band_tier(plan.trigger) ? 1 : 0;
}

// Exact plans need one model at one step. Replicas that average may differ, and the stages within
// one of them may differ by the update of one step. They continue at the highest step, unless that
// is the last one: there all must be equal.
bool PlanSwitch::can_keep(const Members& members) const {
  const schedule::Plan& plan = attempt_->plan;
  const bool averages = schedule::averages(plan);
  if (scattered_ || (apart_ && !averages)) return false;
  if (stand_together(plan, members)) return true;
  const auto states = states_of(plan, members);
  return averages && highest_step(plan, members) < total_steps_ &&
         std::ranges::all_of(states, [](const MemberState* s) { return s->revision != 0; });
}

// Without a live generation, Keep holds only if all ranks are at the same step. So does Move if the
// coordinator is new to the ranks. Otherwise, and if all processes are new, the job starts from the
// last checkpoint, or at step 0 if there is none.
void PlanSwitch::decide_state(const Members& members) {
  Attempt& attempt = *attempt_;
  attempt.keeps_state = false;
  attempt.point.reset();
  attempt.no_point.clear();
  attempt.kept.clear();
  if (attempt.plan.state != schedule::StateMove::kCheckpoint && (broken_ || !base_)) {
    attempt.plan.state = schedule::StateMove::kKeep;
    const auto states = states_of(attempt.plan, members);
    const bool any_state =
        std::ranges::any_of(states, [](const MemberState* s) { return s->revision != 0; });
    if (recovers()) {
      const bool starts = attempt.wanted.state == schedule::StateMove::kRecover;
      if (take_point(members)) {
        attempt.repeated_steps = repeated(members);
        return;
      }
      if (broken_ || any_state || checkpoint_step_ >= 0 || starts) {
        attempt.plan.state = schedule::StateMove::kCheckpoint;
      } else {
        attempt.no_point.clear();  // a new job
      }
    } else if (can_keep(members)) {
      attempt.keeps_state = true;
      attempt.step = highest_step(attempt.plan, members);
    } else if (broken_ || any_state || checkpoint_step_ >= 0) {
      attempt.plan.state = schedule::StateMove::kCheckpoint;
    }
  }
  const bool loads = attempt.plan.state == schedule::StateMove::kCheckpoint;
  attempt.plan.checkpoint_step = loads ? checkpoint_step_ : -1;
  attempt.compressed_steps = checkpoint_compressed_;
  attempt.repeated_steps = loads ? repeated(members) : 0;
}

std::int64_t PlanSwitch::compressed_before(std::int64_t at_step, const Members& members) const {
  const Attempt& attempt = *attempt_;
  if (attempt.plan.state == schedule::StateMove::kCheckpoint) {
    return attempt.plan.checkpoint_step > 0 ? attempt.compressed_steps : 0;
  }
  if (compressed_.knows(at_step)) return compressed_.at(at_step);
  // This coordinator is new: the ranks have counted. Of replicas at different steps the highest.
  std::int64_t count = 0;
  for (const auto& [index, state] : members.all()) {
    const auto holds = [own = index](const RecoveryPoint::Holder& h) { return h.member == own; };
    if (attempt.point && std::ranges::none_of(attempt.point->holders, holds)) continue;
    for (const protocol::Held& held : state.inventory.held) {
      if (held.step == at_step) count = std::max(count, held.compressed_steps);
    }
  }
  return std::min(count, at_step);
}

void PlanSwitch::commit(const Members& members, SteadyTime now, Effects& effects) {
  Attempt& attempt = *attempt_;
  const auto revision = attempt.plan.revision;
  if (attempt.keeps_state &&
      !(can_keep(members) && highest_step(attempt.plan, members) == attempt.step)) {
    // A rank has finished a step since PREPARE was sent, so the state is decided again.
    to_ranks(attempt.plan, protocol::Abort{revision}, members, effects);
    phase_ = Phase::kGathering;
    attempt.deadline.reset();
    return try_prepare(members, now, effects);
  }
  std::int64_t at_step = 0;
  if (attempt.keeps_state || attempt.point) {
    at_step = attempt.step;
  } else if (base_ && !broken_ && (attempt.new_generation || !same_step(*base_, attempt.plan))) {
    at_step = attempt.plan.state == schedule::StateMove::kMove
                  ? boundary(members)
                  : highest_step(attempt.plan, members) + kStepsAhead;
  }
  attempt.waiting.clear();
  for (const auto* state : states_of(attempt.plan, members)) {
    attempt.waiting.insert(state->member.worker_index);
  }
  attempt.committed_at = now;
  protocol::Commit message{.revision = revision, .at_step = at_step};
  if (attempt.new_generation) {
    for (const auto& [index, state] : members.all()) {
      history_ = std::max(history_, state.inventory.history);
    }
    message.history = ++history_;
    const bool loads = attempt.plan.state == schedule::StateMove::kCheckpoint;
    const std::int64_t start =
        loads ? std::max<std::int64_t>(0, attempt.plan.checkpoint_step) : at_step;
    message.compressed_steps = compressed_before(start, members);
    compressed_.begin(start, message.compressed_steps, !attempt.plan.codecs.raw());
    if (attempt.point) message.verdict = attempt.point->verdict;
    message.kept = attempt.kept;
    note_told(members, true);
    phase_ = Phase::kLoading;
    attempt.deadline = now + progress_deadline_;
    broken_ = true;  // until GO
    if (attempt.plan.state == schedule::StateMove::kMove) scattered_ = true;
    to_ranks(attempt.plan, message, members, effects);
    to_idle(message, members, effects);
  } else {
    phase_ = Phase::kApplying;
    attempt.deadline = now + time_to_apply(members);
    attempt.due_step = std::max(at_step, highest_step(attempt.plan, members));
    for (const auto& rank : attempt.plan.ranks) {
      const auto* member = members.by_pod(rank.pod);
      if (rank.stage == 0 && member != nullptr) {
        effects.send.emplace_back(member->member.worker_index, message);
      }
    }
  }
  if (schedule::averages(attempt.plan)) apart_ = true;
  base_ = attempt.plan;
  covered_ = attempt.covered;
  if (!covered_.empty()) whole_ = attempt.wanted;
  base_incarnation_ = attempt.incarnation;
  effects.notes.push_back("COMMIT of plan " + std::to_string(revision) + " at step " +
                          std::to_string(at_step) + kept_text(attempt.kept));
}

void PlanSwitch::go(const Members& members, SteadyTime now, Effects& effects) {
  Attempt& attempt = *attempt_;
  phase_ = Phase::kApplying;
  attempt.deadline = now + time_to_apply(members);
  attempt.pause_seconds = std::chrono::duration<double>(now - attempt.committed_at).count();
  broken_ = false;
  lost_.clear();
  scattered_ = false;
  note_told(members, false);
  apart_ = schedule::averages(attempt.plan);
  effects.notes.push_back("GO of plan " + std::to_string(attempt.plan.revision) + " after " +
                          std::to_string(attempt.pause_seconds) + " s");
}

void PlanSwitch::to_ranks(const schedule::Plan& plan, const protocol::Message& message,
                          const Members& members, Effects& effects, int except) const {
  for (const auto* state : states_of(plan, members)) {
    const int index = state->member.worker_index;
    if (state->connected() && index != except) effects.send.emplace_back(index, message);
  }
}

void PlanSwitch::to_idle(const protocol::Message& message, const Members& members,
                         Effects& effects) const {
  if (!attempt_->new_generation) return;
  for (const auto& [index, state] : members.all()) {
    const auto& ranks = attempt_->plan.ranks;
    const bool has_rank =
        std::ranges::any_of(ranks, [&](const auto& rank) { return rank.pod == state.member.pod; });
    if (state.connected() && !has_rank) effects.send.emplace_back(index, message);
  }
}

Effects PlanSwitch::tick(const Members& members, SteadyTime now) {
  Effects effects;
  dead_.follow(members);
  if (phase_ == Phase::kGathering) {
    try_prepare(members, now, effects);
  } else if (phase_ == Phase::kIdle && training() != nullptr) {
    // A rank found one when it gave its links up for another reason.
    effects.send = dead_.probes(*base_, members, now);
  } else if (phase_ == Phase::kPreparing && now >= *attempt_->deadline) {
    const std::string silent = silent_pods(members);
    note_unprepared(members);
    give_up(protocol::Outcome::kRefused,
            "no answer to PREPARE within " +
                std::to_string(
                    std::chrono::floor<std::chrono::seconds>(now - attempt_->prepared_at).count()) +
                " s from " + silent,
            members, now, effects);
  } else if (phase_ == Phase::kLoading && attempt_->ends_at && now >= *attempt_->ends_at) {
    generation_lost(
        -1, {.replica = -1, .revision = attempt_->plan.revision, .reason = dead_.text(members)},
        members, now, effects);
  } else if (phase_ == Phase::kLoading && now >= *attempt_->deadline) {
    generation_lost(-1, {.revision = attempt_->plan.revision, .reason = "READY_STATE is overdue"},
                    members, now, effects);
  } else if (phase_ == Phase::kApplying && now >= *attempt_->deadline) {
    not_applied(members, now, effects);
  }
  return effects;
}

}  // namespace weir::coordinator
