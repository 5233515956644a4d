// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/mailbox.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "worker/base/log.h"
#include "worker/engine/generation.h"

namespace weir::engine {
namespace {

constexpr const char* kBusy = "too many plan changes are waiting";

template <class T>
bool is(const protocol::Message& message) {
  return std::holds_alternative<T>(message);
}

bool interrupts(const protocol::Message& message) {
  return is<protocol::Prepare>(message) || is<protocol::Abort>(message);
}

}  // namespace

bool Mailbox::put(protocol::Message message) {
  const std::lock_guard lock(mutex_);
  if (auto* const prepared = std::get_if<protocol::Prepare>(&message)) {
    prepare(std::move(*prepared));
  } else if (const auto* const committed = std::get_if<protocol::Commit>(&message)) {
    commit(*committed);
  } else if (const auto* const go = std::get_if<protocol::Go>(&message)) {
    if (current_ && current_->revision == go->revision) {
      if (push(*go)) inventory_.running = true;
    } else {
      log_warn(kRoom, "GO of an unknown plan ignored", {{"revision", go->revision}});
    }
  } else if (const auto* const abort = std::get_if<protocol::Abort>(&message)) {
    const bool unfinished = prepared_ && prepared_->plan.revision == abort->revision;
    const bool awaits_go = current_ && current_->revision == abort->revision && !inventory_.running;
    if (unfinished || awaits_go) {
      ++turn_;
      if (unfinished) prepared_.reset();
      push_interrupting(*abort);
    }
  } else if (auto* const granted = std::get_if<protocol::Grant>(&message)) {
    grant(std::move(*granted));
  } else if (is<protocol::PeerLost>(message) || is<protocol::Leave>(message) ||
             is<protocol::Save>(message) || is<protocol::Saved>(message) ||
             is<protocol::Measure>(message)) {
    push(std::move(message));
  } else {
    return false;
  }
  return true;
}

void Mailbox::prepare(protocol::Prepare message) {
  ++turn_;
  // A second PREPARE without ABORT: the coordinator has abandoned the first one.
  abort_uncommitted();
  prepared_ = Prepared{.plan = message.plan, .incarnation = message.incarnation};
  const protocol::Prepare refused{.plan = {.revision = message.plan.revision},
                                  .incarnation = message.incarnation};
  if (!push_interrupting(std::move(message))) reply(refused, kBusy);
}

void Mailbox::commit(const protocol::Commit& message) {
  const std::uint32_t revision = message.revision;
  if (!prepared_ || prepared_->plan.revision != revision || prepared_->committed) {
    const std::string error = "revision " + std::to_string(revision) + " was not prepared";
    return send(protocol::ReadyState{.revision = revision, .error = error});
  }
  prepared_->committed = true;
  prepared_->new_generation = schedule::starts_generation(current_ ? &*current_ : nullptr,
                                                          prepared_->plan, prepared_->incarnation);
  if (prepared_->plan.state == schedule::StateMove::kCheckpoint) {
    current_.reset();  // the state of this rank is dropped for a checkpoint
    step_ = 0;
  }
  if (!push(message)) reply(message, kBusy);
}

void Mailbox::abort_uncommitted() {
  if (!prepared_ || prepared_->committed) return;
  push_interrupting(protocol::Abort{prepared_->plan.revision});
}

void Mailbox::grant(protocol::Grant message) {
  // The members wait for this rank, so a grant without room is kept. Rounds only grow and only the
  // last one counts.
  if (push(message)) return;
  kept_grant_ = message;
  // The engine thread may have emptied the queue and gone to sleep without seeing the kept grant.
  // Taking a grant twice does no harm.
  push(std::move(message));
}

bool Mailbox::push(protocol::Message message) {
  if (!letters_.try_push({std::move(message), turn_})) return false;
  ++put_;
  return true;
}

bool Mailbox::push_interrupting(protocol::Message message) {
  connecting_.request_stop();
  if (!push(std::move(message))) return false;
  ++interrupting_;
  return true;
}

void Mailbox::session_lost() {
  const std::lock_guard lock(mutex_);
  ++turn_;
  connecting_.request_stop();  // no answer would be sent
  abort_uncommitted();
  prepared_.reset();
}

protocol::Hello Mailbox::hello(const protocol::Member& member) const {
  const std::lock_guard lock(mutex_);
  return {.member = member,
          .incarnation = incarnation_,
          .revision = current_ ? current_->revision : 0,
          .step = step_,
          .inventory = inventory_};
}

std::optional<Letter> Mailbox::take() {
  std::optional<Letter> letter = taken(letters_.try_pop());
  return letter ? std::move(letter) : kept();
}

std::optional<Letter> Mailbox::wait(SteadyTime deadline, std::stop_token stop) {
  if (std::optional<Letter> letter = take()) return letter;
  return taken(letters_.pop(deadline, std::move(stop)));
}

std::optional<Letter> Mailbox::taken(std::optional<Letter> letter) {
  if (letter) ++taken_;
  if (letter && interrupts(letter->message)) {
    const std::lock_guard lock(mutex_);
    --interrupting_;
  }
  return letter;
}

std::optional<Letter> Mailbox::kept() {
  const std::lock_guard lock(mutex_);
  if (!kept_grant_) return std::nullopt;
  return Letter{*std::exchange(kept_grant_, std::nullopt), turn_};
}

void Mailbox::answer(const Letter& letter, const std::string& reason,
                     std::optional<std::int64_t> held) {
  const std::lock_guard lock(mutex_);
  if (letter.turn == turn_) reply(letter.message, reason, held);
}

void Mailbox::answer(const Letter& letter, const protocol::Measured& measured) {
  const std::lock_guard lock(mutex_);
  if (letter.turn == turn_) send(measured);
}

void Mailbox::reply(const protocol::Message& message, const std::string& reason,
                    std::optional<std::int64_t> held) {
  if (const auto* const committed_message = std::get_if<protocol::Commit>(&message)) {
    return committed(*committed_message, reason, held);
  }
  const auto& prepare = std::get<protocol::Prepare>(message);
  const std::uint32_t revision = prepare.plan.revision;
  const int incarnation = prepare.incarnation;
  if (reason.empty()) {
    send(protocol::Ready{.revision = revision, .incarnation = incarnation});
  } else {
    send(protocol::Reject{.revision = revision, .reason = reason, .incarnation = incarnation});
  }
}

void Mailbox::committed(const protocol::Commit& message, const std::string& reason,
                        std::optional<std::int64_t> held) {
  const bool new_generation = prepared_->new_generation;
  if (reason.empty()) {
    if (prepared_->plan.state == schedule::StateMove::kCheckpoint) {
      step_ = std::max<std::int64_t>(0, prepared_->plan.checkpoint_step);
    } else if (new_generation) {
      step_ = message.at_step;
    }
    current_ = std::move(prepared_->plan);
    incarnation_ = prepared_->incarnation;
    prepared_.reset();
  } else if (held) {
    step_ = *held;
  }
  if (new_generation || !reason.empty()) {
    send(protocol::ReadyState{
        .revision = message.revision, .error = reason, .step = step_, .holds = held.has_value()});
  } else {
    send(protocol::Applied{.revision = message.revision, .step = step_});
  }
}

std::stop_source Mailbox::begin_connecting() {
  const std::lock_guard lock(mutex_);
  measures_ = false;
  connecting_ = std::stop_source();
  if (interrupting_ > 0) connecting_.request_stop();
  return connecting_;
}

std::stop_source Mailbox::begin_measuring() {
  const std::lock_guard lock(mutex_);
  std::stop_source source = begin_connecting();
  measures_ = true;
  return source;
}

std::uint64_t Mailbox::turn() const {
  const std::lock_guard lock(mutex_);
  return turn_;
}

void Mailbox::interrupt_connecting() {
  const std::lock_guard lock(mutex_);
  connecting_.request_stop();
}

void Mailbox::interrupt_measuring() {
  const std::lock_guard lock(mutex_);
  if (measures_) connecting_.request_stop();
}

void Mailbox::tell(const protocol::Message& message) {
  if (const auto* const inventory = std::get_if<protocol::Inventory>(&message)) {
    const std::lock_guard lock(mutex_);
    inventory_ = *inventory;
    return send(message);  // locked, so that it does not come behind a HELLO with a newer one
  }
  if (const auto* const status = std::get_if<protocol::StageStatus>(&message)) {
    const std::lock_guard lock(mutex_);
    step_ = status->step;
    // Within a generation, a stage other than 0 gets no COMMIT: it reads the epoch and reports it
    // in its STATUS.
    if (prepared_ && !prepared_->committed && prepared_->plan.revision == status->epoch &&
        current_ &&
        !schedule::starts_generation(&*current_, prepared_->plan, prepared_->incarnation)) {
      current_ = std::move(prepared_->plan);
      incarnation_ = prepared_->incarnation;
      prepared_.reset();
    }
  }
  send(message);
}

}  // namespace weir::engine
