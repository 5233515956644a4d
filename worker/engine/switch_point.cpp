// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/switch_point.h"

#include <utility>

namespace weir::engine {
namespace {

constexpr const char* kBusy = "too many plan changes are waiting";

}  // namespace

void SwitchPoint::prepare(schedule::Plan plan, int incarnation, Answer answer) {
  if (!push_interrupting(PrepareCommand{std::move(plan), incarnation, answer})) answer(kBusy);
}

void SwitchPoint::commit(std::uint32_t revision, std::int64_t at_step, Answer answer) {
  if (!commands_.try_push(CommitCommand{revision, at_step, answer})) answer(kBusy);
}

void SwitchPoint::go(std::uint32_t revision) {
  // A dropped GO is harmless: the engine's wait for it has a deadline.
  static_cast<void>(commands_.try_push(GoCommand{revision}));
}

void SwitchPoint::abort(std::uint32_t revision) {
  static_cast<void>(push_interrupting(AbortCommand{revision}));
}

void SwitchPoint::peer_lost(std::string reason) {
  // If this is dropped, the engine notices by itself: its links fail or its waits time out.
  static_cast<void>(commands_.try_push(PeerLostCommand{std::move(reason)}));
}

void SwitchPoint::finished() {
  static_cast<void>(commands_.try_push(FinishedCommand{}));
}

void SwitchPoint::save(std::int64_t step, std::vector<int> replicas) {
  // If this is dropped, the rank sends no SAVED, and the coordinator's next round follows.
  static_cast<void>(commands_.try_push(SaveCommand{step, std::move(replicas)}));
}

void SwitchPoint::saved(std::int64_t step, std::string error, bool leave) {
  // If this is dropped, a rank that waits for it leaves at the end of its grace.
  static_cast<void>(commands_.try_push(SavedCommand{step, std::move(error), leave}));
}

void SwitchPoint::grant(Grant grant) {
  // The members wait for this rank, so a grant without room is kept. Rounds only grow and only the
  // last one counts.
  if (commands_.try_push(grant)) return;
  {
    const std::lock_guard lock(kept_mutex_);
    kept_grant_ = grant;
  }
  // The engine thread may have emptied the queue and gone to sleep without seeing the kept grant.
  // Taking a grant twice does no harm.
  static_cast<void>(commands_.try_push(std::move(grant)));
}

std::optional<Command> SwitchPoint::kept() {
  const std::lock_guard lock(kept_mutex_);
  if (!kept_grant_) return std::nullopt;
  return *std::exchange(kept_grant_, std::nullopt);
}

bool SwitchPoint::push_interrupting(Command command) {
  const std::lock_guard lock(connecting_mutex_);
  connecting_.request_stop();
  if (!commands_.try_push(std::move(command))) return false;
  ++interrupting_;
  return true;
}

std::optional<Command> SwitchPoint::take() {
  std::optional<Command> command = taken(commands_.try_pop());
  return command ? std::move(command) : kept();
}

std::optional<Command> SwitchPoint::wait(std::chrono::steady_clock::time_point deadline,
                                         std::stop_token stop) {
  if (std::optional<Command> command = take()) return command;
  return taken(commands_.pop(deadline, std::move(stop)));
}

std::optional<Command> SwitchPoint::taken(std::optional<Command> command) {
  const bool interrupts = command && (std::holds_alternative<PrepareCommand>(*command) ||
                                      std::holds_alternative<AbortCommand>(*command));
  if (interrupts) {
    const std::lock_guard lock(connecting_mutex_);
    --interrupting_;
  }
  return command;
}

std::stop_source SwitchPoint::begin_connecting() {
  const std::lock_guard lock(connecting_mutex_);
  connecting_ = std::stop_source();
  if (interrupting_ > 0) connecting_.request_stop();
  return connecting_;
}

void SwitchPoint::interrupt_connecting() {
  const std::lock_guard lock(connecting_mutex_);
  connecting_.request_stop();
}

}  // namespace weir::engine
