// SPDX-License-Identifier: Apache-2.0
// Notes that the engine does not take its letters. An op that never returns blocks the engine's
// thread only: heartbeats go on, so the coordinator does not miss the rank. It goes on without the
// replica, and to the operator the job makes progress. So the worker must end by itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "worker/base/clock.h"
#include "worker/engine/mailbox.h"

namespace weir::app {

// For how long letters have waited of which none was taken. Pure.
class Unread {
 public:
  // most: the longest time between two looks that counts. A process that was stopped meanwhile has
  // not hung.
  explicit Unread(std::chrono::nanoseconds most) : most_(most) {}
  std::chrono::nanoseconds look(const engine::Mailbox::Reading& reading, SteadyTime now);

 private:
  const std::chrono::nanoseconds most_;
  engine::Mailbox::Reading last_;
  std::optional<SteadyTime> looked_;
  std::chrono::nanoseconds waited_{0};
};

class HangWatch {
 public:
  using Hangs = std::function<void(std::chrono::nanoseconds limit)>;

  // Calls `hangs` once, on a thread of its own, when letters have waited for the limit.
  HangWatch(const engine::Mailbox& mailbox, std::chrono::nanoseconds limit, const Clock& clock,
            Hangs hangs);

 private:
  std::mutex mutex_;  // for the wait only
  std::condition_variable_any stopped_;
  std::jthread thread_;  // the last member: it ends first
};

// Ends the process with exit code 1, so that its container begins again. Its threads are not asked
// to end, because the engine's never would.
[[noreturn]] void end_hung(std::chrono::nanoseconds limit);

}  // namespace weir::app
