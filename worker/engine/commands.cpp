// SPDX-License-Identifier: Apache-2.0
// Plans in the engine: prepare, commit, adopt (worker/coordinator/README.md "Plan switch").
#include <algorithm>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/log.h"
#include "worker/base/text.h"
#include "worker/engine/engine.h"
#include "worker/engine/generation.h"
#include "worker/engine/state_move.h"
#include "worker/engine/step.h"

namespace weir::engine {
namespace {

constexpr std::size_t kMostPrepared = 2;  // worker/coordinator/README.md "Plan switch"

}  // namespace

void Engine::take_commands() {
  while (std::optional<Command> command = switch_point_.take()) handle(*std::move(command));
}

void Engine::handle(Command command) {
  if (auto* const prepare = std::get_if<PrepareCommand>(&command)) on_prepare(std::move(*prepare));
  if (auto* const commit = std::get_if<CommitCommand>(&command)) on_commit(std::move(*commit));
  if (const auto* const go = std::get_if<GoCommand>(&command)) on_go(*go);
  if (const auto* const abort = std::get_if<AbortCommand>(&command)) on_abort(*abort);
  if (const auto* const lost = std::get_if<PeerLostCommand>(&command)) on_peer_lost(*lost);
  if (std::holds_alternative<FinishedCommand>(command)) others_finished_ = true;
  if (const auto* const save = std::get_if<SaveCommand>(&command)) on_save(*save);
  if (const auto* const saved = std::get_if<SavedCommand>(&command)) on_saved(*saved);
  if (auto* const grant = std::get_if<Grant>(&command)) on_grant(std::move(*grant));
}

const Engine::Prepared* Engine::prepared(std::uint32_t revision) const {
  for (const Prepared& candidate : prepared_) {
    if (candidate.plan.revision == revision) return &candidate;
  }
  return nullptr;
}

void Engine::on_prepare(PrepareCommand command) {
  std::vector<std::string> reasons =
      objections(command.plan, options_.identity, parts_.model,
                 {.limit = parts_.device.memory_bytes(), .saves = copies_for_saves()});
  if (generation_ && command.plan.revision < generation_->current.plan.revision) {
    reasons.push_back("revision: " + std::to_string(command.plan.revision) + " is older than " +
                      std::to_string(generation_->current.plan.revision) + " in force");
  }
  const bool in_band =
      generation_ && switches_in_band(generation_->current.plan, command.plan, command.incarnation);
  if (in_band && generation_->broken) {
    reasons.push_back("the generation has lost a peer: only a rejoin can repair it");
  }
  if (!reasons.empty()) {
    command.answer(joined(reasons, "; "));
    return;
  }
  std::erase_if(prepared_, [&](const Prepared& other) {
    return other.plan.revision == command.plan.revision;
  });
  const auto committed = [&](const Prepared& other) {
    return pending_ && pending_->commit.revision == other.plan.revision;
  };
  while (prepared_.size() >= kMostPrepared) {
    const auto oldest = std::find_if_not(prepared_.begin(), prepared_.end(), committed);
    prepared_.erase(oldest);
  }
  prepared_.push_back({std::move(command.plan), command.incarnation});
  command.answer("");
}

void Engine::on_commit(CommitCommand command) {
  const Prepared* const next = prepared(command.revision);
  if (next == nullptr) {
    command.answer("revision " + std::to_string(command.revision) + " was not prepared");
    return;
  }
  const bool trains = generation_ && generation_->trains();
  const bool in_band =
      generation_ && switches_in_band(generation_->current.plan, next->plan, next->incarnation);
  if (in_band && !trains) {
    command.answer("this rank runs no stage of that generation");
    return;
  }
  const bool late =
      trains && !in_band && (step_ > command.at_step || (in_step_ && step_ == command.at_step));
  if (late && next->plan.state != schedule::StateMove::kCheckpoint) {
    // The states of the ranks would belong to different steps.
    command.answer("COMMIT for step " + std::to_string(command.at_step) + " came in step " +
                   std::to_string(step_));
    return;
  }
  const bool moves = next->plan.state == schedule::StateMove::kMove;
  if (trains && !in_band && moves && holder_of(next->plan, options_.identity) == nullptr) {
    lost_ = "the other replicas continued without this one";  // it cannot reach their boundary
  }
  if (pending_) pending_->commit.answer("another COMMIT came");
  pending_ = Pending{std::move(command), in_band};
}

void Engine::on_go(const GoCommand& command) {
  const bool expected = generation_ && !generation_->running &&
                        generation_->current.plan.revision == command.revision;
  if (!expected) return;
  offer_.reset();  // all ranks have fetched their layers
  grant_.reset();
  reported_ = {};
  generation_->running = true;
  validated_ = step_;
  skipped_in_row_ = 0;  // a rank that has just joined has counted none
  ever_ran_ = true;
}

void Engine::on_abort(const AbortCommand& command) {
  std::erase_if(prepared_,
                [&](const Prepared& other) { return other.plan.revision == command.revision; });
  if (pending_ && pending_->commit.revision == command.revision) {
    pending_->commit.answer("aborted");
    pending_.reset();
  }
  const bool waits_for_go = generation_ && !generation_->running &&
                            generation_->current.plan.revision == command.revision;
  if (!waits_for_go) return;
  offer_.reset();
  drop_links();
  generation_.reset();
  waiting_since_ = parts_.clock.now();
}

void Engine::on_peer_lost(const PeerLostCommand& command) {
  if (!generation_ || !generation_->trains()) return;  // already known, or there is nothing to drop
  if (leaving() && in_step_) {  // the peer may have left after this step; the links will tell
    leave_now_ = true;
    return;
  }
  lost_ = command.reason;
}

// Rounds only grow, so a repeated grant is ignored.
void Engine::on_grant(Grant grant) {
  const bool expected = generation_ && generation_->trains();
  if (expected && (!grant_ || grant.round > grant_->round)) grant_ = std::move(grant);
}

void Engine::adopt(const Prepared& next) {
  generation_->current = next;
  const std::uint32_t revision = next.plan.revision;
  recorder_.plan_adopted(generation_->current.plan, generation_->current.incarnation);
  std::erase_if(prepared_, [&](const Prepared& other) { return other.plan.revision <= revision; });
  log_info(kRoom, "plan adopted",
           {{"revision", revision},
            {"step", step_},
            {"schedule", name(generation_->current.plan.schedule.family)},
            {"k", generation_->current.plan.schedule.k}});
  if (pending_ && pending_->commit.revision <= revision) {
    pending_->commit.answer("");
    pending_.reset();
  }
}

std::uint32_t Engine::due_epoch() const {
  if (generation_->replicas && !schedule::averages(generation_->current.plan)) return agreed_epoch_;
  const bool due = pending_ && pending_->in_band && step_ >= pending_->commit.at_step;
  return due ? pending_->commit.revision : 0;
}

std::uint32_t Engine::wanted_epoch() const {
  const bool wants = pending_ && pending_->in_band && generation_->links->first() &&
                     step_ + 1 >= pending_->commit.at_step;
  return wants ? pending_->commit.revision : 0;
}

Status Engine::begin_with_header(const std::stop_token& stop) {
  Generation& generation = *generation_;
  StageLinks& links = *generation.links;
  if (links.first()) {
    if (const std::uint32_t epoch = due_epoch(); epoch != 0) {
      const Prepared* const next = prepared(epoch);
      if (next == nullptr) {
        return Error{Code::kConflict, "the replicas change to plan " + std::to_string(epoch) +
                                          ", which was never prepared"};
      }
      adopt(Prepared(*next));
    }
  } else {
    WEIR_OK(links.expect_header());
    const StepParts waiting = step_parts(parts_.dataset, [this] {
      take_commands();
      return (!leaving() || one_more_step()) && !leave_is_over() && !lost_ && !switch_due();
    });
    const SteadyTime since = parts_.clock.now();
    std::optional<StepHeaderBytes> bytes = links.take_header();
    for (; !bytes; bytes = links.take_header()) WEIR_OK(wait_for_peer(waiting, since, stop));
    recorder_.idle(IdleCause::kWaitForward, parts_.clock.now() - since);
    WEIR_OK(accept_header(*bytes));
  }
  if (!links.last()) {
    links.send_header(
        encode(make_step_header(options_.job_uid, step_, generation.current.plan,
                                generation.place.replica, generation.current.incarnation)));
  }
  return Unit{};
}

// A header that does not match breaks the generation; it is never reinterpreted.
Status Engine::accept_header(std::span<const std::byte> bytes) {
  WEIR_TRY(const StepHeader header, decode_step_header(bytes));
  const bool new_epoch = header.epoch != generation_->current.plan.revision;
  const Prepared* const next = new_epoch ? prepared(header.epoch) : &generation_->current;
  if (next == nullptr) {
    return Error{Code::kConflict,
                 "step header: epoch " + std::to_string(header.epoch) + " was never prepared"};
  }
  if (new_epoch && !same_generation(generation_->current.plan, next->plan)) {
    return Error{Code::kConflict, "step header: epoch " + std::to_string(header.epoch) +
                                      " belongs to another generation"};
  }
  const StepHeader expected = make_step_header(options_.job_uid, step_, next->plan,
                                               generation_->place.replica, next->incarnation);
  WEIR_OK(check_step_header(header, expected));
  if (new_epoch) adopt(Prepared(*next));
  return Unit{};
}

}  // namespace weir::engine
