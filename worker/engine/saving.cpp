// SPDX-License-Identifier: Apache-2.0
// Checkpoints in the engine. Copies the state between two steps, waits where a save must come
// before the next step (the last step, a leaving rank), and fills a new stage. The coordinator
// decides which step is saved.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/log.h"
#include "worker/engine/engine.h"
#include "worker/engine/generation.h"

namespace weir::engine {
namespace {

bool loads(const schedule::Plan& plan) {
  return plan.state == schedule::StateMove::kCheckpoint && plan.checkpoint_step >= 0;
}

}  // namespace

void Engine::leave_saved(std::chrono::nanoseconds grace) {
  begins_first_ = true;
  const SteadyTime at = parts_.clock.now() + grace;
  const bool copies = options_.saves || parts_.snapshots != nullptr;
  (copies ? leave_saved_at_ : leave_at_)
      .store(std::max<std::int64_t>(1, at.time_since_epoch().count()));
  mailbox_.interrupt_measuring();
  // Peers that never come keep it no longer.
  grace_end_ = std::jthread([this, grace](const std::stop_token& ended) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    never.wait_for(lock, ended, grace, [] { return false; });
    if (!ended.stop_requested()) mailbox_.interrupt_connecting();
  });
}

void Engine::settle_leave() {
  if (options_.saves || leave_saved_at_.load() == 0 || leave_is_over()) return;
  if (pending_ || begins() || offer_) return;  // others fetch its layers
  const bool copied = generation_ && generation_->trains() &&
                      generation_->current.plan.replica_count() == 1 &&
                      generation_->current.plan.stage_count() > 1;
  if (!copied) leave_at_.store(leave_saved_at_.exchange(0));
}

// Parameters change at the very end of a step, so while step N runs they are still the state after
// N steps.
void Engine::on_save(const protocol::Save& order) {
  if (order.snapshot) return on_save_of_snapshot(order);
  const bool possible = generation_ && generation_->trains() && parts_.save;
  if (!possible || step_ > order.step) {
    mailbox_.tell(protocol::Saved{.step = order.step, .late = true, .at = step_});
    return;
  }
  saving_.ordered = order.step;
  saving_.replicas = order.replicas;
  save_if_due();
}

void Engine::save_if_due() {
  if (saving_.ordered != step_) return;
  saving_.ordered.reset();
  if (!generation_ || !generation_->trains()) return;  // its round is over
  saving_.copied = step_;
  interrupted_ = true;
  std::vector<int> replicas = saving_.replicas;
  if (replicas.empty()) {
    replicas.resize(generation_->current.plan.micro_batches.size());
    std::iota(replicas.begin(), replicas.end(), 0);
  }
  const auto part = [&](int layer) {  // a layer is equal in all replicas, so one of them saves it
    return replicas[static_cast<std::size_t>(layer) % replicas.size()];
  };
  const SteadyTime start = parts_.clock.now();
  parts_.save(*generation_->stage, step_,
              [&](int layer) { return part(layer) == generation_->place.replica; });
  stopwatch_.cut_out(StepPart::kSave, start);
  log_debug(kRoom, "state copied",
            {{"step", step_},
             {"seconds", std::chrono::duration<double>(parts_.clock.now() - start).count()}});
}

void Engine::on_saved(const protocol::Saved& saved) {
  if (saved.snapshot) {
    if (saved.leave) {
      saving_.released = true;
      saving_.failure = saved.error;
    }
    if (parts_.snapshots != nullptr) {
      parts_.snapshots->taken_by_all(saved.step, saved.error.empty());
    }
    return;
  }
  if (saved.error.empty()) {
    recorder_.checkpoint_complete(saved.step);
  } else {
    recorder_.checkpoint_failed();
  }
  if (saved.leave) saving_.released = true;
  if (saved.leave || saved.step == options_.total_steps) saving_.failure = saved.error;
  if (saved.step == options_.total_steps) saving_.last_done = true;
}

bool Engine::leave_is_over() const {
  const std::int64_t at = leave_saved_at_.load();
  return at != 0 && (saving_.released || parts_.clock.now().time_since_epoch().count() >= at);
}

std::optional<Ending> Engine::end_of_leave() const {
  if (leave_saved_at_.load() == 0) return std::nullopt;
  // A rank without a stage waits, too: the others may need it as their coordinator. One that has
  // got COMMIT waits for GO, since the others cannot begin without it.
  const bool needed = generation_ && (generation_->running || (!options_.saves && offer_));
  const bool waits = begins() || (needed && !generation_->broken);
  if (waits && !leave_is_over()) return std::nullopt;
  const std::string what = options_.saves ? "saved" : "copied";
  std::string how = ", " + what;
  if (!saving_.released) how = waits ? ", not " + what + ": the grace is over" : "";
  if (!saving_.failure.empty()) how = ", not " + what + ": " + saving_.failure;
  return Ending{Exit::kTerminated, "left after step " + std::to_string(step_) + how};
}

bool Engine::holds() const {
  const bool leaves = leave_saved_at_.load() != 0 && saving_.copied == step_;
  if (!options_.saves) return leaves && !snapshot_at_ && (!pending_ || pending_->in_band);
  if (saving_.ordered) return false;
  if (step_ >= options_.total_steps) return !saving_.last_done || !saving_.failure.empty();
  return leaves;
}

std::optional<Ending> Engine::hold(const std::stop_token& stop) {
  const SteadyTime now = parts_.clock.now();
  if (step_ >= options_.total_steps) {
    if (saving_.last_done) {
      return Ending{Exit::kCheckpoint, "the last step was not saved: " + saving_.failure};
    }
    if (!saving_.holds_since) saving_.holds_since = now;
    if (now - *saving_.holds_since >= options_.progress_deadline) {
      return Ending{Exit::kCheckpoint, "the last step was not saved before the progress deadline"};
    }
  }
  if (lost_) return failed(Error{Code::kCancelled, "a peer is lost"}, stop);
  // Peers still need what was sent. If one of them has left, the coordinator reports it.
  static_cast<void>(generation_->links->poll(stop));
  await_letter(stop);
  stopwatch_.lap(StepPart::kSave);
  return std::nullopt;
}

bool Engine::fills(const schedule::Plan& plan) const {
  return loads(plan) || parts_.init;
}

Status Engine::fill_stage(stage::Stage& stage, const schedule::Plan& plan) {
  if (!loads(plan)) {
    const Status begun = parts_.init ? parts_.init(stage) : Status(Unit{});
    if (!begun) give_up_ = Ending{Exit::kConfiguration, begun.error().message};
    return begun;
  }
  const std::int64_t step = plan.checkpoint_step;
  const Status loaded =
      parts_.load ? parts_.load(stage, step)
                  : Status(Error{Code::kNotFound, "this worker has no checkpoint folder"});
  if (loaded) {
    step_ = step;
    saving_.last_done = step >= options_.total_steps;
    recorder_.checkpoint_complete(step);
    log_info(kRoom, "checkpoint loaded", {{"step", step}, {"revision", plan.revision}});
    return loaded;
  }
  // For a damaged checkpoint the coordinator chooses an older one. Other errors concern this
  // machine only.
  if (loaded.error().code == Code::kConflict) {  // every worker of the job would find the same
    give_up_ = Ending{Exit::kConfiguration, loaded.error().message};
  } else if (loaded.error().code != Code::kInvalid) {
    give_up_ = Ending{Exit::kCheckpoint, loaded.error().message};
  } else {
    log_error(kRoom, "checkpoint is damaged", {{"step", step}, {"reason", loaded.error().message}});
    mailbox_.tell(protocol::BadCheckpoint{.step = step, .reason = loaded.error().message});
  }
  return loaded;
}

}  // namespace weir::engine
