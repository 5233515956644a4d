// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/save_rounds.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "worker/protocol/codec.h"

namespace weir::coordinator {
namespace {

constexpr std::int64_t kMostAhead = 1024;  // steps of 1 ms and a second of delay
constexpr int kMostFailures = 3;           // in a row; then the disk is no passing trouble

// Those that train.
std::vector<const MemberState*> ranks_of(const SaveRounds::Training& training,
                                         const Members& members) {
  std::vector<const MemberState*> result;
  for (const auto& rank : training.plan->ranks) {
    const auto* member = training.lost.contains(rank.replica) ? nullptr : members.by_pod(rank.pod);
    if (member != nullptr) result.push_back(member);
  }
  return result;
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

SaveRounds::SaveRounds(const CheckpointPolicy& policy, std::int64_t total_steps, int layers)
    : policy_(policy), total_steps_(total_steps), layers_(layers), whole_(policy.found) {}

SaveRounds::Effects SaveRounds::advance(const Training& training, const Members& members,
                                        SteadyTime now) {
  Effects effects;
  if (!policy_.on) return effects;
  if (training.plan == nullptr) {
    if (round_ && !round_->committing) {
      effects.notes.push_back("save of step " + std::to_string(round_->step) +
                              " given up: the generation is broken");
      round_.reset();
    }
    next_.reset();
    last_step_ = -1;
    reached_ = 0;
    return effects;
  }
  if (!next_) next_ = now + policy_.period;
  std::int64_t highest = std::max(reached_, training.reached);
  for (const auto* rank : ranks_of(training, members)) highest = std::max(highest, rank->step);
  if (round_ && !round_->committing && round_->lost != training.lost) {
    // Layers that a replica was to save which is gone: the others save them, at a later step.
    effects.notes.push_back("save of step " + std::to_string(round_->step) +
                            " given up: a replica is gone");
    open(std::min(std::max(highest, round_->step) + ahead_, total_steps_), training, members,
         effects);
  }
  serve_leavers(training, members, highest, effects);
  if (round_) return effects;
  if (const auto step = due(highest, now)) open(*step, training, members, effects);
  return effects;
}

// Without those who want to leave.
std::optional<std::int64_t> SaveRounds::due(std::int64_t highest, SteadyTime now) const {
  const std::int64_t soonest = highest + ahead_;
  if (soonest >= total_steps_) {  // ranks wait at the last step: it cannot be too late
    const bool done = last_failed_ || newest() == total_steps_;
    return done ? std::nullopt : std::optional(total_steps_);
  }
  if (policy_.interval_steps > 0) {
    const std::int64_t from = std::max(soonest, last_step_ + 1);
    return std::min(round_up(from, policy_.interval_steps), total_steps_);
  }
  return now >= *next_ ? std::optional(soonest) : std::nullopt;
}

void SaveRounds::serve_leavers(const Training& training, const Members& members,
                               std::int64_t highest, Effects& effects) {
  for (const auto& [index, member] : members.all()) {  // with those that are idle
    const bool wants = member.connected() && member.leaving && !member.finished &&
                       !served_.contains(member.session);
    if (!wants || (round_ && round_->leavers.contains(member.session))) continue;
    // A round of what it has left behind, or one whose end is near: the next one.
    if (round_ && (round_->committing || round_->step < member.step)) continue;
    const std::int64_t soonest = std::min(highest + ahead_, total_steps_);
    if (!round_ || round_->step > soonest) open(soonest, training, members, effects);
    round_->leavers.insert(member.session);
  }
}

void SaveRounds::open(std::int64_t step, const Training& training, const Members& members,
                      Effects& effects) {
  std::set<control::SessionId> leavers;
  if (round_) leavers = std::move(round_->leavers);
  round_ = Round{.step = step, .lost = training.lost, .leavers = std::move(leavers)};
  last_step_ = step;
  protocol::Save save{.step = step, .replicas = {}};
  for (int r = 0; !training.lost.empty() && r < training.plan->replica_count(); ++r) {
    if (!training.lost.contains(r)) save.replicas.push_back(r);
  }
  for (const auto* rank : ranks_of(training, members)) {
    round_->waiting.insert(rank->member.worker_index);
    effects.send.emplace_back(rank->member.worker_index, save);
  }
}

SaveRounds::Effects SaveRounds::on_saved(int index, const protocol::Saved& saved,
                                         const Training& training, const Members& members,
                                         SteadyTime now) {
  Effects effects;
  const bool expected = round_ && !round_->committing && round_->step == saved.step &&
                        training.plan != nullptr && round_->waiting.contains(index);
  if (!expected) return effects;
  if (saved.late) {
    reached_ = std::max(reached_, saved.at);
    ahead_ = std::min(2 * ahead_, kMostAhead);
    effects.notes.push_back("SAVE of step " + std::to_string(saved.step) + " came too late, at " +
                            std::to_string(saved.at));
    const bool urgent = !round_->leavers.empty();
    if (urgent) {
      open(std::min(reached_ + ahead_, total_steps_), training, members, effects);
    } else {
      round_.reset();
    }
  } else if (!saved.error.empty()) {
    close("worker " + std::to_string(index) + ": " + saved.error, members, now, effects);
  } else {
    round_->waiting.erase(index);
    for (const auto& file : saved.files) round_->files.emplace(file.name, file);
    if (round_->waiting.empty()) order_commit(training, effects);
    if (round_ && round_->waiting.empty() && !round_->committing) {
      close("layers are missing", members, now, effects);
    }
  }
  return effects;
}

void SaveRounds::order_commit(const Training& training, Effects& effects) {
  if (static_cast<int>(round_->files.size()) != layers_) return;
  round_->committing = true;
  round_->samples = samples_at(round_->step, *training.plan);
  const Checkpoint checkpoint{.step = round_->step, .samples = round_->samples};
  CheckpointOrder order{.checkpoint = checkpoint,
                        .revision = training.plan->revision,
                        .incarnation = training.incarnation,
                        .plan_json = protocol::encode_plan(*training.plan),
                        .keep = {checkpoint.step}};
  for (auto& [name, file] : round_->files) order.files.push_back(file);
  const auto kept = static_cast<std::size_t>(std::max(1, policy_.keep));
  for (auto older = whole_.rbegin(); older != whole_.rend() && order.keep.size() < kept; ++older) {
    if (older->step != checkpoint.step) order.keep.push_back(older->step);
  }
  round_->keep = order.keep;
  effects.commit = std::move(order);
}

std::int64_t SaveRounds::samples_at(std::int64_t step, const schedule::Plan& plan) const {
  const std::int64_t batch =
      std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), std::int64_t{0}) *
      plan.schedule.micro_batch_size;
  const Checkpoint before = whole_.empty() ? Checkpoint{} : whole_.back();
  return before.samples + (step - before.step) * batch;
}

SaveRounds::Effects SaveRounds::committed(std::int64_t step, const std::string& error,
                                          const Members& members, SteadyTime now) {
  Effects effects;
  if (!round_ || !round_->committing || round_->step != step) return effects;
  close(error, members, now, effects);
  return effects;
}

// The round is over: tells everybody how.
void SaveRounds::close(const std::string& error, const Members& members, SteadyTime now,
                       Effects& effects) {
  const Round round = *std::exchange(round_, std::nullopt);
  next_ = now + policy_.period;
  for (const auto& [index, state] : members.all()) {
    if (!state.connected()) continue;
    const bool leaves = round.leavers.contains(state.session);
    effects.send.emplace_back(index,
                              protocol::Saved{.step = round.step, .error = error, .leave = leaves});
  }
  served_.insert(round.leavers.begin(), round.leavers.end());
  if (error.empty()) {
    failures_ = 0;
    std::erase_if(whole_, [&](const Checkpoint& one) {
      return one.step >= round.step || std::ranges::find(round.keep, one.step) == round.keep.end();
    });
    whole_.push_back({.step = round.step, .samples = round.samples});
    effects.notes.push_back("checkpoint of step " + std::to_string(round.step) + " is complete");
    return;
  }
  last_failed_ = round.step == total_steps_;
  effects.warnings.push_back("step " + std::to_string(round.step) + " was not saved: " + error);
  if (++failures_ >= kMostFailures) {
    effects.unusable = "checkpoints cannot be written: " + error;
  }
}

SaveRounds::Effects SaveRounds::on_bad(int index, const protocol::BadCheckpoint& bad) {
  Effects effects;
  const auto known = std::erase_if(
      whole_, [&](const Checkpoint& checkpoint) { return checkpoint.step == bad.step; });
  if (known == 0) return effects;  // another rank was first
  effects.warnings.push_back("checkpoint of step " + std::to_string(bad.step) +
                             " is damaged, worker " + std::to_string(index) +
                             " says: " + bad.reason);
  if (whole_.empty()) effects.unusable = "none of the checkpoints can be loaded: " + bad.reason;
  return effects;
}

}  // namespace weir::coordinator
