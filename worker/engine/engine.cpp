// SPDX-License-Identifier: Apache-2.0
// The engine's loop: what to do next, and the consequences of a failure. Plans: commands.cpp. Links
// and stages: generation.cpp.
#include "worker/engine/engine.h"

#include <algorithm>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/log.h"
#include "worker/base/units.h"
#include "worker/engine/generation.h"
#include "worker/engine/received_rates.h"
#include "worker/engine/state_average.h"
#include "worker/engine/state_move.h"
#include "worker/engine/step.h"

namespace weir::engine {
namespace {

using transport::Channel;

constexpr auto kLetterSlice = std::chrono::milliseconds(100);
// A peer that gets its COMMIT earlier closes its links earlier. So a lost link is reported only
// after this wait for our own COMMIT.
constexpr auto kCommitGrace = std::chrono::milliseconds(200);
// For the last bytes, in addition to the grace.
constexpr auto kLeaveDrain = std::chrono::seconds(2);

std::string in_seconds(std::chrono::nanoseconds time) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(time).count()) + " s";
}

}  // namespace

Engine::Engine(Options options, Parts parts, Callbacks callbacks)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      callbacks_(std::move(callbacks)),
      mailbox_(callbacks_.send),
      flight_(std::max<std::size_t>(1, options_.flight_events)),
      stopwatch_(parts_.clock, recorder_, recording()),
      codec_(parts_.device, parts_.model.options.precision,
             [this] {
               return parts_.make_kernels
                          ? parts_.make_kernels()
                          : stage::ops::make_kernels(parts_.device, parts_.model.options.precision);
             }),
      ran_history_(parts_.snapshots != nullptr ? parts_.snapshots->inventory().history : 0) {}

Engine::~Engine() = default;

void Engine::leave(std::chrono::nanoseconds grace) {
  const SteadyTime at = parts_.clock.now() + grace;
  leave_at_.store(std::max<std::int64_t>(1, at.time_since_epoch().count()));
  mailbox_.interrupt_connecting();
}

bool Engine::leave_overdue() const {
  return leaving() && parts_.clock.now().time_since_epoch().count() >= leave_at_.load();
}

std::vector<transport::LinkReport> Engine::links() const {
  const std::lock_guard lock(links_mutex_);
  return links_ ? links_->reports() : std::vector<transport::LinkReport>();
}

bool Engine::one_more_step() {
  if (!leave_before_) leave_before_ = step_ + 1;
  const bool trains = generation_ && generation_->trains() && generation_->links;
  return trains && !generation_->links->first() && step_ < *leave_before_ && !leave_now_ &&
         !leave_overdue() && !switch_due() && !generation_->links->peer_left(Channel::kForward);
}

bool Engine::begins() const {
  const std::uint64_t turn = mailbox_.turn();
  if (switch_due()) return pending_->letter.turn == turn;
  return generation_ && !generation_->running && generation_->turn == turn;
}

bool Engine::quits() const {
  const bool leaves = leaving() || leave_saved_at_.load() != 0;
  return leaves && (!begins_first_ || !begins() || leave_overdue() || leave_is_over());
}

bool Engine::switch_due() const {
  if (!pending_ || pending_->in_band) return false;
  return !generation_ || !generation_->trains() || step_ >= pending_->commit.at_step;
}

Ending Engine::run(const std::stop_token& stop) {
  waiting_since_ = parts_.clock.now();
  for (;;) {
    take_letters();
    if (std::optional<Ending> ending = should_end(stop)) {
      drop_links();
      return *std::move(ending);
    }
    if (switch_due()) {
      stopwatch_.begin_part(StepPart::kSwitch);
      if (std::optional<Ending> ending = enter_generation(stop)) return *std::move(ending);
      stopwatch_.lap(StepPart::kSwitch);
    } else if (generation_ && generation_->trains()) {
      const bool last = step_ >= options_.total_steps;
      std::optional<Ending> ending = holds() ? hold(stop)
                                     : last  ? finish(stop)
                                             : train_one_step(stop);
      if (ending) return *std::move(ending);
    } else {
      await_letter(stop);
      stopwatch_.lap(StepPart::kSwitch);
    }
  }
}

std::optional<Ending> Engine::should_end(const std::stop_token& stop) {
  if (stop.stop_requested()) return Ending{Exit::kTerminated, "stopped"};
  if (std::optional<Ending> ending = end_of_leave()) return ending;
  const bool begins_first = begins_first_ && begins() && !leave_overdue();
  if (leaving() && !begins_first && !one_more_step()) {
    const SteadyTime grace_end{SteadyTime::duration(leave_at_.load())};
    const std::chrono::nanoseconds left = grace_end - parts_.clock.now();
    drain(std::max<std::chrono::nanoseconds>(left, kLeaveDrain), stop);
    return Ending{Exit::kTerminated, "left after step " + std::to_string(step_)};
  }
  // The rank has no stage, or the other replicas continued without it.
  const bool idle = !generation_ || !generation_->placed || generation_->broken;
  if (others_finished_ && idle) return Ending{Exit::kFinished, "all steps are done by others"};
  if (generation_ && generation_->running && !generation_->broken) return std::nullopt;
  if (pending_) return std::nullopt;

  // While the operator answers, this rank waits for its plan without a limit: the operator decides
  // when to give up.
  if (callbacks_.in_touch && callbacks_.in_touch()) {
    waiting_since_ = parts_.clock.now();
    return std::nullopt;
  }
  const std::chrono::nanoseconds waited = parts_.clock.now() - waiting_since_;
  if (!ever_ran_) {
    if (waited < options_.startup_timeout) return std::nullopt;
    return Ending{Exit::kCrash, "no plan came within " + in_seconds(options_.startup_timeout) +
                                    " (--startup-timeout)"};
  }
  if (waited < options_.rejoin_timeout) return std::nullopt;
  return Ending{Exit::kPeerLost, "lost a peer and got no new plan within " +
                                     in_seconds(options_.rejoin_timeout) + " (--rejoin-timeout)"};
}

void Engine::await_letter(const std::stop_token& stop) {
  const std::optional<Letter> letter = mailbox_.wait(parts_.clock.now() + kLetterSlice, stop);
  if (letter) on(*letter);
}

// Parts for a step of the generation, without its replicas.
StepParts Engine::step_parts(const data::Dataset& dataset, std::function<bool()> go_on) {
  return {.stage = *generation_->stage,
          .links = *generation_->links,
          .codec = codec_,
          .dataset = dataset,
          .recorder = recorder_,
          .stopwatch = stopwatch_,
          .clock = parts_.clock,
          .sequence = parts_.model.options.sequence,
          .progress_deadline = options_.progress_deadline,
          .go_on = std::move(go_on)};
}

std::optional<Ending> Engine::train_one_step(const std::stop_token& stop) {
  Generation& generation = *generation_;
  // The step that the loss should have ended was complete all the same.
  if (lost_) return failed(Error{Code::kCancelled, "a peer is lost"}, stop);
  stopwatch_.at_step(step_);
  const Status begun = begin_with_header(stop);
  if (!begun) return failed(begun.error(), stop);

  // Must be known before the step, since it decides which message follows. With Partial the step
  // may complete more than one.
  const bool validates =
      validation_due(step_ + 1, options_.total_steps, validated_, options_.validation.interval);
  // With sums over several replicas, the part of this one is kept where another one is lost.
  const bool sums = generation.replicas && !schedule::averages(generation.current.plan);
  const auto keeps_share = [&] { return sums && lost_elsewhere_; };
  StepParts parts = step_parts(parts_.dataset, [&] {
    take_letters();
    if (leaving() && !leave_before_) leave_before_ = step_ + 1;
    return !leave_overdue() && !leave_is_over() && !(lost_ && !keeps_share()) && !switch_due();
  });
  parts.others_lost = [&] { return lost_ && keeps_share(); };
  parts.replicas = generation.replicas.get();
  parts.ties = generation.ties.get();
  parts.beside = &generation.beside;
  parts.next_epoch = [this] { return wanted_epoch(); };
  parts.ready_to_average = [this](double seconds) { say_ready(seconds); };
  parts.granted = [&](SteadyTime until) { return granted(until, stop); };
  parts.round_failed = [this](const protocol::Grant& grant, int missing,
                              const std::string& reason) {
    log_warn(kRoom, "continued without an average",
             {{"round", grant.round},
              {"step", grant.next_step},
              {"missing", missing},
              {"reason", reason}});
    mailbox_.tell(protocol::RoundFailed{.replica = generation_->place.replica,
                                        .round = grant.round,
                                        .missing = missing,
                                        .reason = reason});
  };
  StepOrder order{.plan = generation.current.plan,
                  .replica = generation.place.replica,
                  .stage = generation.place.stage,
                  .incarnation = generation.current.incarnation,
                  .step = step_,
                  .header_follows = step_ + 1 < options_.total_steps && !validates,
                  .grad_clip = options_.grad_clip,
                  .kept = std::exchange(generation.kept, {})};
  if (std::optional<KeptShare> kept = std::exchange(share_, std::nullopt); kept) {
    order.own = std::move(kept->share);
  }
  in_step_ = true;
  summed_.reset();
  StepEnd end;
  Result<StepRecord> record = run_step(parts, order, stop, &end);
  in_step_ = false;
  agreed_epoch_ = record ? record->next_epoch : 0;
  if (!record) {
    generation.broken = true;
    if (end.summed && !end.updated) summed_ = std::move(end.record);
    if (end.share && !end.updated) {
      share_ = KeptShare{.share = *std::move(end.share),
                         .micro_batch_size = order.plan.schedule.micro_batch_size,
                         .micro_batches = static_cast<int>(order.plan.step_micro_batches()),
                         .codecs = order.plan.codecs};
    }
    between_models_ = end.updated;
    return failed(record.error(), stop);
  }
  if (parts_.lateness) {
    record->lateness = std::exchange(parts_.lateness->samples, {});
    record->overruns = std::exchange(parts_.lateness->overruns, 0);
    recorder_.lateness(record->lateness, record->overruns);
  }
  count_step(*record);
  if (options_.diverged_after > 0 && skipped_in_row_ >= options_.diverged_after) {
    return diverged(stop);
  }
  return validates ? validate(stop) : std::nullopt;
}

void Engine::count_step(StepRecord& record) {
  recorder_.step_done(record, parts_.model.options.sequence);
  share_.reset();
  if (record.codecs) compressed_steps_ += record.next_step - step_;
  step_ = record.next_step;
  record.interrupted = std::exchange(interrupted_, false);
  verdict_ = record.verdict;
  skipped_in_row_ = record.skipped ? skipped_in_row_ + 1 : 0;
  record.skipped_in_row = skipped_in_row_;
  stopwatch_.begin_part(StepPart::kSave);
  save_if_due();
  snapshot_if_due();
  stopwatch_.lap(StepPart::kOther);
  record.parts = stopwatch_.take();
  stopwatch_.at_step(step_);
  stopwatch_.begin_part(StepPart::kOther);
  if (callbacks_.step_done) callbacks_.step_done(record);
}

// All ranks have counted the same steps, so they end after the same step.
Ending Engine::diverged(const std::stop_token& stop) {
  finish(stop);
  return {Exit::kDiverged,
          "training has diverged: the loss or the norm of the gradients was not a "
          "finite number in " +
              std::to_string(skipped_in_row_) + " steps in a row, the last one is step " +
              std::to_string(step_)};
}

std::optional<Ending> Engine::validate(const std::stop_token& stop) {
  Generation& generation = *generation_;
  WEIR_CHECK(parts_.validation != nullptr, "an interval comes with data");
  const StepParts parts = step_parts(*parts_.validation, [this] {
    take_letters();
    return !leave_overdue() && !leave_is_over() && !lost_ && !switch_due();
  });
  const ValidationOrder order{.plan = generation.current.plan,
                              .samples = options_.validation.samples,
                              .header_follows = step_ < options_.total_steps};
  stopwatch_.lap(StepPart::kOther);
  stopwatch_.begin_part(StepPart::kValidation);
  const Result<double> loss = run_validation(parts, order, stop);
  const std::chrono::nanoseconds took = stopwatch_.lap(StepPart::kValidation);
  if (!loss) {
    if (loss.error().code == Code::kCancelled && switch_due()) return enter_generation(stop);
    generation.broken = true;  // messages left on its links belong to no step
    return failed(loss.error(), stop);
  }
  validated_ = step_;
  interrupted_ = true;
  recorder_.validated(step_, *loss, took);
  const bool tells = callbacks_.validated && generation.links->last();
  if (tells) callbacks_.validated(generation.place.replica, step_, *loss);
  return std::nullopt;
}

void Engine::say_ready(double seconds) {
  transport::CollectiveCounters now = generation_->replicas->counters();
  const double average =
      generation_->links->on_device() ? 0 : to_seconds(now.busy - reported_.busy);
  mailbox_.tell(protocol::SyncReady{.replica = generation_->place.replica,
                                    .step = step_ + 1,
                                    .step_seconds = seconds,
                                    .received = received_rates(reported_, now),
                                    .average_seconds = average});
  reported_ = std::move(now);
}

// The grant of this step. A leaving rank does not wait for it: the replicas that would average with
// this one leave, too, or are told.
Result<std::optional<protocol::Grant>> Engine::granted(SteadyTime until,
                                                       const std::stop_token& stop) {
  const auto own = [this] { return grant_ && grant_->step == step_ + 1; };
  if (!own() && leaving()) return Error{Code::kCancelled, "left before the average"};
  if (!own()) {
    if (const std::optional<Letter> letter = mailbox_.wait(until, stop)) on(*letter);
  }
  return own() ? grant_ : std::optional<protocol::Grant>();
}

// Peers may still be in their last step: they need the bytes that this rank has sent, but not its
// open links.
Ending Engine::finish(const std::stop_token& stop) {
  drain(options_.progress_deadline, stop);
  drop_links();
  return {Exit::kFinished, "all steps are done"};
}

void Engine::drain(std::chrono::nanoseconds limit, const std::stop_token& stop) {
  if (!generation_ || !generation_->trains() || !generation_->links) return;
  const SteadyTime until = parts_.clock.now() + limit;
  while (!generation_->links->drained() && parts_.clock.now() < until) {
    if (!generation_->links->pump(until, stop)) return;
  }
}

std::optional<Ending> Engine::failed(const Error& error, const std::stop_token& stop) {
  const bool by_coordinator = error.code == Code::kCancelled && lost_.has_value();
  if (error.code == Code::kCancelled && !by_coordinator) return std::nullopt;  // the loop knows why
  generation_->broken = true;
  waiting_since_ = parts_.clock.now();
  if (!by_coordinator) abort_links(error.message);
  drop_links();
  tell_inventory();
  if (error.code == Code::kInternal) return Ending{Exit::kOutOfMemory, error.message};
  if (error.code == Code::kGone) return Ending{Exit::kCheckpoint, error.message};
  if (error.code == Code::kNotFound) return Ending{Exit::kConfiguration, error.message};
  if (error.code == Code::kModel) return Ending{Exit::kModelFailed, error.message};

  const SteadyTime until = parts_.clock.now() + kCommitGrace;
  while (!by_coordinator && !pending_ && !lost_ && !leaving() && !stop.stop_requested() &&
         parts_.clock.now() < until) {
    await_letter(stop);
  }
  const std::string reason = lost_ ? *std::exchange(lost_, std::nullopt) : error.message;
  if (leaving() || (pending_ && !pending_->in_band)) return std::nullopt;
  if (pending_) {  // it was for links that are gone
    end_pending(reason);
  }
  log_warn(
      kRoom,
      share_ ? "step interrupted, waiting for a new plan" : "step dropped, waiting for a new plan",
      {{"step", step_},
       {"kept_micro_batches", share_ ? schedule::count_of(share_->share.ids) : 0},
       {"revision", generation_->current.plan.revision},
       {"stage", generation_->place.stage},
       {"reason", reason}});
  if (!by_coordinator) {
    mailbox_.tell(protocol::PeerLost{.replica = generation_->place.replica,
                                     .stage = generation_->place.stage,
                                     .revision = generation_->current.plan.revision,
                                     .reason = reason,
                                     .finish_part = share_.has_value()});
  }
  return std::nullopt;
}

}  // namespace weir::engine
