// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/save_rounds.h"

#include <algorithm>
#include <utility>

#include "worker/base/text.h"
#include "worker/protocol/codec.h"

namespace weir::coordinator {
namespace {

constexpr std::int64_t kFurthestSave = 1024;  // 1 s of delay with steps of 1 ms
constexpr int kMostFailures = 3;  // in a row; a temporary fault of the disk causes fewer

// The ranks that train.
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
    : policy_(policy), total_steps_(total_steps), layers_(layers), whole_(policy.found) {
  // The newest was saved after steps beyond it.
  if (whole_.size() > 1) proven_ = whole_[whole_.size() - 2].step;
}

void SaveRounds::on_status(const protocol::StageStatus& status) {
  skips_ = status.skipped_in_row > 0;
  if (!skips_) proven_ = std::max(proven_, status.step - 1);
}

std::int64_t SaveRounds::newest_proven() const {
  std::int64_t newest = -1;
  for (const Checkpoint& one : whole_) {
    if (one.step <= proven_) newest = one.step;
  }
  return newest;
}

void SaveRounds::remove(const CheckpointRemoval& removal, Effects& effects) {
  if (!effects.remove) {
    effects.remove.emplace();
    ++removing_;
  }
  auto& all = *effects.remove;
  all.complete.insert(all.complete.end(), removal.complete.begin(), removal.complete.end());
  all.unfinished.insert(all.unfinished.end(), removal.unfinished.begin(), removal.unfinished.end());
}

SaveRounds::Effects SaveRounds::advance(const Training& training, const Members& members,
                                        SteadyTime now) {
  Effects effects;
  if (!policy_.on || given_up_) return effects;
  if (training.plan == nullptr) {
    if (round_ && !round_->committing) {
      effects.notes.push_back("save of step " + std::to_string(round_->step) +
                              " given up: the generation is broken");
      remove({.complete = {}, .unfinished = {round_->step}}, effects);
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
    // A lost replica was to save some layers: the others save them at a later step.
    effects.notes.push_back("save of step " + std::to_string(round_->step) +
                            " given up: a replica is gone");
    open(std::min(std::max(highest, round_->step) + ahead_, total_steps_), training, members, now,
         effects);
  }
  look_at_the_clock(members, now, effects);
  // The next save needs the space that the removal frees.
  if (again_ && removing_ > 0) return effects;
  drop_surplus(effects);
  serve_leaving_ranks(training, members, highest, now, effects);
  if (round_) return effects;
  if (const auto step = due(highest, now)) open(*step, training, members, now, effects);
  return effects;
}

// A disk that hangs must not stop training: the round ends, and later answers are ignored. A commit
// cannot be taken back, so only a warning is given.
void SaveRounds::look_at_the_clock(const Members& members, SteadyTime now, Effects& effects) {
  if (!round_ || policy_.deadline.count() == 0 || now - round_->opened < policy_.deadline) return;
  const std::string limit =
      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(policy_.deadline).count()) +
      " s";
  if (!round_->committing) {
    return close(
        {.error = "no answer within " + limit + " from workers " + joined(round_->waiting, ", "),
         .trouble = protocol::SaveTrouble::kBusy},
        members, now, effects);
  }
  if (std::exchange(round_->overdue, true)) return;
  effects.warnings.push_back("checkpoint of step " + std::to_string(round_->step) +
                             ": the disk of worker 0 has not completed it within " + limit);
}

// Removes checkpoints that were kept only until a newer one has proved good.
void SaveRounds::drop_surplus(Effects& effects) {
  const auto kept = static_cast<std::size_t>(std::max(1, policy_.keep));
  const std::int64_t proven = newest_proven();
  std::vector<std::int64_t> surplus;
  for (std::size_t i = 0; i + kept < whole_.size(); ++i) {
    if (whole_[i].step < proven) surplus.push_back(whole_[i].step);
  }
  for (const std::int64_t step : doubted_) {
    if (step < proven) surplus.push_back(step);
  }
  if (surplus.empty()) return;
  const auto goes = [&](std::int64_t step) {
    return std::ranges::find(surplus, step) != surplus.end();
  };
  std::erase_if(whole_, [&](const Checkpoint& one) { return goes(one.step); });
  std::erase_if(doubted_, goes);
  remove({.complete = surplus, .unfinished = {}}, effects);
}

// The step of the next save that is due, apart from ranks that want to leave.
std::optional<std::int64_t> SaveRounds::due(std::int64_t highest, SteadyTime now) const {
  const std::int64_t soonest = highest + ahead_;
  if (soonest >= total_steps_) {  // ranks wait at the last step, so it can always be saved
    const bool done = last_failed_ || newest() == total_steps_;
    return done ? std::nullopt : std::optional(total_steps_);
  }
  if (skips_) return std::nullopt;  // the parameters may stay useless
  if (again_) return soonest;
  if (policy_.interval_steps > 0) {
    const std::int64_t from = std::max(soonest, last_step_ + 1);
    return std::min(round_up(from, policy_.interval_steps), total_steps_);
  }
  return now >= *next_ ? std::optional(soonest) : std::nullopt;
}

void SaveRounds::serve_leaving_ranks(const Training& training, const Members& members,
                                     std::int64_t highest, SteadyTime now, Effects& effects) {
  for (const auto& [index, member] : members.all()) {  // including idle members
    const bool wants = member.connected() && member.leaving && !member.finished &&
                       !served_.contains(member.session);
    if (!wants || (round_ && round_->leaving.contains(member.session))) continue;
    // The open round is of a step that the rank has passed, or is about to end: the rank waits for
    // the next round.
    if (round_ && (round_->committing || round_->step < member.step)) continue;
    const std::int64_t soonest = std::min(highest + ahead_, total_steps_);
    if (!round_ || round_->step > soonest) open(soonest, training, members, now, effects);
    round_->leaving.insert(member.session);
  }
}

void SaveRounds::open(std::int64_t step, const Training& training, const Members& members,
                      SteadyTime now, Effects& effects) {
  std::set<control::SessionId> leaving;
  if (round_) leaving = std::move(round_->leaving);
  round_ = Round{.step = step, .lost = training.lost, .leaving = std::move(leaving), .opened = now};
  last_step_ = step;
  // Only steps from now on prove what this round saves. They may end before the round does.
  proven_ = std::min(proven_, step - 1);
  again_ = false;
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
  if (!expected) {
    // Files of an abandoned round will never be committed.
    const bool useless = !saved.late && (!round_ || round_->step != saved.step) &&
                         std::ranges::find(whole_, saved.step, &Checkpoint::step) == whole_.end();
    if (useless) remove({.complete = {}, .unfinished = {saved.step}}, effects);
    return effects;
  }
  if (does_not_train(saved)) return effects;
  if (saved.late) {
    reached_ = std::max(reached_, saved.at);
    ahead_ = std::min(2 * ahead_, kFurthestSave);
    effects.notes.push_back("SAVE of step " + std::to_string(saved.step) + " came too late, at " +
                            std::to_string(saved.at));
    const bool urgent = !round_->leaving.empty();
    if (urgent) {
      open(std::min(reached_ + ahead_, total_steps_), training, members, now, effects);
    } else {
      round_.reset();
    }
  } else if (!saved.error.empty()) {
    close(
        {.error = "worker " + std::to_string(index) + ": " + saved.error, .trouble = saved.trouble},
        members, now, effects);
  } else {
    round_->waiting.erase(index);
    for (const auto& file : saved.files) round_->files.emplace(file.name, file);
    if (round_->waiting.empty()) order_commit(training, effects);
    if (round_ && round_->waiting.empty() && !round_->committing) {
      close({.error = "layers are missing"}, members, now, effects);
    }
  }
  return effects;
}

void SaveRounds::order_commit(const Training& training, Effects& effects) {
  if (static_cast<int>(round_->files.size()) != layers_) return;
  round_->committing = true;
  round_->samples = samples_at(round_->step, *training.plan);
  if (training.compressed != nullptr) {
    round_->compressed_steps = training.compressed->at(round_->step);
  }
  const Checkpoint checkpoint{.step = round_->step,
                              .samples = round_->samples,
                              .compressed_steps = round_->compressed_steps};
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
  std::vector<std::int64_t> also = doubted_;
  also.push_back(newest_proven());
  for (const std::int64_t step : also) {
    const bool kept_already = std::ranges::find(order.keep, step) != order.keep.end();
    if (step >= 0 && step < checkpoint.step && !kept_already) order.keep.push_back(step);
  }
  round_->keep = order.keep;
  effects.commit = std::move(order);
}

std::int64_t SaveRounds::samples_at(std::int64_t step, const schedule::Plan& plan) const {
  const std::int64_t batch = plan.step_micro_batches() * plan.schedule.micro_batch_size;
  const Checkpoint before = whole_.empty() ? Checkpoint{} : whole_.back();
  return before.samples + (step - before.step) * batch;
}

SaveRounds::Effects SaveRounds::committed(std::int64_t step, const SaveResult& result,
                                          const Members& members, SteadyTime now) {
  Effects effects;
  if (!round_ || !round_->committing || round_->step != step) return effects;
  close(result, members, now, effects);
  return effects;
}

// Removes the oldest checkpoint except for the newest one and the newest that has proved good.
// Returns false if there is no other.
bool SaveRounds::make_room(Effects& effects) {
  const std::int64_t proven = newest_proven();
  const auto oldest = std::ranges::find_if(
      whole_, [&](const Checkpoint& one) { return one.step != newest() && one.step != proven; });
  if (oldest == whole_.end()) return false;
  effects.warnings.push_back("the disk is full: checkpoint of step " +
                             std::to_string(oldest->step) + " goes, and the save is tried again");
  remove({.complete = {oldest->step}, .unfinished = {}}, effects);
  whole_.erase(oldest);
  return true;
}

// Ends the round and tells all ranks its result.
void SaveRounds::close(const SaveResult& result, const Members& members, SteadyTime now,
                       Effects& effects) {
  const std::string& error = result.error;
  const Round round = *std::exchange(round_, std::nullopt);
  if (!error.empty()) {
    effects.warnings.push_back("step " + std::to_string(round.step) + " was not saved: " + error);
    remove({.complete = {}, .unfinished = {round.step}}, effects);
    if (result.trouble == protocol::SaveTrouble::kFull && make_room(effects)) {
      again_ = true;  // ranks that want to leave wait for the repeated save, too
      return;
    }
  }
  next_ = now + policy_.period;
  for (const auto& [index, state] : members.all()) {
    if (!state.connected()) continue;
    const bool leaves = round.leaving.contains(state.session);
    effects.send.emplace_back(index,
                              protocol::Saved{.step = round.step, .error = error, .leave = leaves});
  }
  served_.insert(round.leaving.begin(), round.leaving.end());
  if (error.empty()) {
    failures_ = 0;
    std::erase_if(whole_, [&](const Checkpoint& one) {
      return one.step >= round.step || std::ranges::find(round.keep, one.step) == round.keep.end();
    });
    std::erase_if(doubted_, [&](std::int64_t step) { return step >= round.step; });
    whole_.push_back(
        {.step = round.step, .samples = round.samples, .compressed_steps = round.compressed_steps});
    effects.notes.push_back("checkpoint of step " + std::to_string(round.step) + " is complete");
    return;
  }
  last_failed_ = round.step == total_steps_;
  // Training continues without the save; a warning has been given.
  if (result.trouble == protocol::SaveTrouble::kBusy) return;
  if (++failures_ >= kMostFailures) {
    given_up_ = true;  // training ends, so a further save would stay unfinished
    effects.unusable = "checkpoints cannot be written: " + error;
  }
}

SaveRounds::Effects SaveRounds::on_bad(int index, const protocol::BadCheckpoint& bad) {
  Effects effects;
  const auto known = std::erase_if(
      whole_, [&](const Checkpoint& checkpoint) { return checkpoint.step == bad.step; });
  if (known == 0) return effects;  // another rank has reported it already
  doubted_.push_back(bad.step);  // only one rank says so: the fault may lie in its view of the disk
  effects.warnings.push_back("checkpoint of step " + std::to_string(bad.step) +
                             " is damaged, worker " + std::to_string(index) +
                             " says: " + bad.reason);
  if (whole_.empty()) effects.unusable = "none of the checkpoints can be loaded: " + bad.reason;
  return effects;
}

}  // namespace weir::coordinator
