// SPDX-License-Identifier: Apache-2.0
// Messages of the coordinator in the engine, and plans: prepare, commit, adopt
// (worker/coordinator/README.md "Plan switch").
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

void Engine::take_letters() {
  while (const std::optional<Letter> letter = mailbox_.take()) on(*letter);
  settle_leave();
}

void Engine::on(const Letter& letter) {
  const protocol::Message& message = letter.message;
  if (const auto* const prepare = std::get_if<protocol::Prepare>(&message)) {
    mailbox_.answer(letter, on_prepare(*prepare));
  }
  if (const auto* const commit = std::get_if<protocol::Commit>(&message)) {
    on_commit(letter, *commit);
  }
  if (const auto* const go = std::get_if<protocol::Go>(&message)) on_go(*go);
  if (const auto* const abort = std::get_if<protocol::Abort>(&message)) on_abort(*abort);
  if (const auto* const lost = std::get_if<protocol::PeerLost>(&message)) on_peer_lost(*lost);
  if (std::holds_alternative<protocol::Leave>(message)) others_finished_ = true;
  if (const auto* const save = std::get_if<protocol::Save>(&message)) on_save(*save);
  if (const auto* const saved = std::get_if<protocol::Saved>(&message)) on_saved(*saved);
  if (const auto* const grant = std::get_if<protocol::Grant>(&message)) on_grant(*grant);
  if (const auto* const measure = std::get_if<protocol::Measure>(&message)) {
    mailbox_.answer(letter, on_measure(*measure));
  }
}

const Engine::Prepared* Engine::prepared(std::uint32_t revision) const {
  for (const Prepared& candidate : prepared_) {
    if (candidate.plan.revision == revision) return &candidate;
  }
  return nullptr;
}

bool Engine::in_band(const schedule::Plan& next, int incarnation) const {
  return generation_ && !schedule::starts_generation(&generation_->current.plan, next, incarnation);
}

void Engine::end_pending(const std::string& reason) {
  mailbox_.answer(pending_->letter, reason);
  pending_.reset();
}

std::string Engine::on_prepare(const protocol::Prepare& prepare) {
  const schedule::Plan& plan = prepare.plan;
  std::vector<std::string> reasons =
      objections(plan, options_.identity, parts_.model,
                 {.limit = parts_.device.memory_bytes(),
                  .saves = copies_for_saves(),
                  .copies = options_.needs_copies && parts_.snapshots != nullptr,
                  .copies_room = room_beside_device()});
  if (generation_ && plan.revision < generation_->current.plan.revision) {
    reasons.push_back("revision: " + std::to_string(plan.revision) + " is older than " +
                      std::to_string(generation_->current.plan.revision) + " in force");
  }
  if (in_band(plan, prepare.incarnation) && generation_->broken) {
    reasons.push_back("the generation has lost a peer: only a rejoin can repair it");
  }
  if (!reasons.empty()) return joined(reasons, "; ");
  std::erase_if(prepared_,
                [&](const Prepared& other) { return other.plan.revision == plan.revision; });
  const auto committed = [&](const Prepared& other) {
    return pending_ && pending_->commit.revision == other.plan.revision;
  };
  while (prepared_.size() >= kMostPrepared) {
    const auto oldest = std::find_if_not(prepared_.begin(), prepared_.end(), committed);
    prepared_.erase(oldest);
  }
  prepared_.push_back({plan, prepare.incarnation});
  return "";
}

void Engine::on_commit(const Letter& letter, const protocol::Commit& commit) {
  const Prepared* const next = prepared(commit.revision);
  if (next == nullptr) {
    const std::string revision = std::to_string(commit.revision);
    return mailbox_.answer(letter, "revision " + revision + " was not prepared");
  }
  const bool trains = generation_ && generation_->trains();
  const bool same_links = in_band(next->plan, next->incarnation);
  if (same_links && !trains) {
    return mailbox_.answer(letter, "this rank runs no stage of that generation");
  }
  const bool leaves = trains && !same_links && !lost_;  // a lost step is dropped anyway
  const bool late = leaves && (step_ > commit.at_step || (in_step_ && step_ == commit.at_step));
  if (late && next->plan.state != schedule::StateMove::kCheckpoint) {
    // The states of the ranks would belong to different steps.
    return mailbox_.answer(letter, "COMMIT for step " + std::to_string(commit.at_step) +
                                       " came in step " + std::to_string(step_));
  }
  const bool moves = next->plan.state == schedule::StateMove::kMove;
  if (leaves && moves && holder_of(next->plan, options_.identity) == nullptr) {
    lost_ = "the other replicas continued without this one";  // it cannot reach their boundary
    lost_elsewhere_ = false;
  }
  if (pending_) end_pending("another COMMIT came");
  pending_ = Pending{letter, commit, same_links};
}

void Engine::on_go(const protocol::Go& go) {
  const bool expected =
      generation_ && !generation_->running && generation_->current.plan.revision == go.revision;
  if (!expected) return tell_inventory();
  offer_.reset();  // all ranks have fetched their layers
  holdings_.settle(generation_->placed, generation_->history);
  ran_history_ = std::max(ran_history_, generation_->history);
  begin_snapshots();
  name_model();
  between_models_ = false;
  summed_.reset();  // the next step may have other numbers
  const auto place = static_cast<std::size_t>(generation_->place.replica);
  if (generation_->kept.empty() || generation_->kept[place].empty()) share_.reset();
  grant_.reset();
  reported_ = {};
  generation_->running = true;
  validated_ = step_;
  skipped_in_row_ = 0;  // a rank that has just joined has counted none
  ever_ran_ = true;
  tell_inventory();  // of an idle rank
}

// Replicas that average have models of their own.
void Engine::name_model() {
  const bool own = schedule::averages(generation_->current.plan);
  holdings_.of_replica(own ? generation_->place.replica : -1);
}

void Engine::on_abort(const protocol::Abort& abort) {
  std::erase_if(prepared_,
                [&](const Prepared& other) { return other.plan.revision == abort.revision; });
  if (pending_ && pending_->commit.revision == abort.revision) end_pending("aborted");
  const bool waits_for_go =
      generation_ && !generation_->running && generation_->current.plan.revision == abort.revision;
  if (waits_for_go) return give_up_generation();
  tell_inventory();
}

void Engine::on_peer_lost(const protocol::PeerLost& lost) {
  // The loss is known, or there is nothing to drop.
  if (!generation_ || !generation_->trains()) return tell_inventory();
  if (leaving() && in_step_) {  // the peer may have left after this step; the links will tell
    leave_now_ = true;
    return;
  }
  const int own = generation_->place.replica;
  const bool elsewhere = lost.finish_part || (lost.replica >= 0 && lost.replica != own);
  if (lost_ && elsewhere) return;  // the first reason counts
  lost_elsewhere_ = elsewhere;
  lost_ = "replica " + std::to_string(lost.replica) + " stage " + std::to_string(lost.stage) +
          ": " + lost.reason;
}

// On this thread, which alone calls the layers.
protocol::Measured Engine::on_measure(const protocol::Measure& request) {
  if (!parts_.measure) return {.error = "this worker cannot measure"};
  if (generation_ && generation_->placed) return {.error = "this worker trains"};
  const std::stop_source source = mailbox_.begin_measuring();
  if (leaving()) return {.error = "this worker leaves"};
  return parts_.measure(request, source.get_token());
}

// Rounds only grow, so a repeated grant is ignored.
void Engine::on_grant(const protocol::Grant& grant) {
  const bool expected = generation_ && generation_->trains();
  if (expected && (!grant_ || grant.round > grant_->round)) grant_ = grant;
}

void Engine::adopt(const Prepared& next) {
  interrupted_ = true;
  generation_->current = next;
  name_model();
  tell_snapshots_of_plan();
  const std::uint32_t revision = next.plan.revision;
  recorder_.plan_adopted(generation_->current.plan, generation_->current.incarnation);
  std::erase_if(prepared_, [&](const Prepared& other) { return other.plan.revision <= revision; });
  log_info(kRoom, "plan adopted",
           {{"revision", revision},
            {"step", step_},
            {"schedule", name(generation_->current.plan.schedule.family)},
            {"k", generation_->current.plan.schedule.k}});
  if (pending_ && pending_->commit.revision <= revision) end_pending("");
  stopwatch_.lap(StepPart::kSwitch);
  const std::int64_t now = stopwatch_.last().time_since_epoch().count();
  if (FlightRecorder* const flight = recording()) {
    flight->add({.begin = now,
                 .end = now,
                 .extra = revision,
                 .step = flight->step(),
                 .kind = timeline::EventKind::kPlan});
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
    stopwatch_.lap(StepPart::kOther);
    const StepParts waiting = step_parts(parts_.dataset, [this] {
      take_letters();
      return (!leaving() || one_more_step()) && !leave_is_over() && !lost_ && !switch_due();
    });
    const SteadyTime since = stopwatch_.last();
    stopwatch_.begin_part(StepPart::kForwardLate);
    std::optional<StepHeaderBytes> bytes = links.take_header();
    for (; !bytes; bytes = links.take_header()) WEIR_OK(wait_for_peer(waiting, since, stop));
    stopwatch_.wait_lap(false, true);
    recorder_.filled(stopwatch_.settle(true, links.header_transfer(), std::nullopt));
    WEIR_OK(accept_header(*bytes));
  }
  if (!links.last()) {
    links.send_header(encode(make_step_header(options_.job_uid, step_, generation.current.plan,
                                              generation.place.replica, generation.place.stage,
                                              generation.current.incarnation)));
  }
  return Unit{};
}

// A header that does not match breaks the generation; it is never reinterpreted.
Status Engine::accept_header(std::span<const std::byte> bytes) {
  const Result<const Prepared*> named = plan_named_by(bytes);
  if (!named) return named.error().with(generation_->headers_from);
  if (*named != &generation_->current) adopt(Prepared(**named));
  return Unit{};
}

Result<const Engine::Prepared*> Engine::plan_named_by(std::span<const std::byte> bytes) const {
  WEIR_TRY(const StepHeader header, decode_step_header(bytes));
  const bool new_epoch = header.epoch != generation_->current.plan.revision;
  const Prepared* const next = new_epoch ? prepared(header.epoch) : &generation_->current;
  if (next == nullptr) {
    return Error{Code::kConflict,
                 "step header: epoch " + std::to_string(header.epoch) + " was never prepared"};
  }
  if (new_epoch && !in_band(next->plan, next->incarnation)) {
    return Error{Code::kConflict, "step header: epoch " + std::to_string(header.epoch) +
                                      " belongs to another generation"};
  }
  const schedule::RankPlace& place = generation_->place;
  WEIR_OK(
      check_step_header(header, make_step_header(options_.job_uid, step_, next->plan, place.replica,
                                                 place.stage - 1, next->incarnation)));
  return next;
}

}  // namespace weir::engine
