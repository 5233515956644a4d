// SPDX-License-Identifier: Apache-2.0
#include "worker/app/hang_watch.h"

#include <algorithm>
#include <stop_token>
#include <string>
#include <unistd.h>
#include <utility>

#include "worker/base/log.h"
#include "worker/base/termination.h"
#include "worker/protocol/exit_codes.h"

namespace weir::app {
namespace {

constexpr std::chrono::nanoseconds kShortestPause = std::chrono::milliseconds(10);
constexpr std::chrono::nanoseconds kLongestPause = std::chrono::seconds(5);

}  // namespace

std::chrono::nanoseconds Unread::look(const engine::Mailbox::Reading& reading, SteadyTime now) {
  const bool waits = looked_ && last_.put > last_.taken && reading.taken == last_.taken;
  waited_ = waits ? waited_ + std::min<std::chrono::nanoseconds>(now - *looked_, most_)
                  : std::chrono::nanoseconds(0);
  last_ = reading;
  looked_ = now;
  return waited_;
}

HangWatch::HangWatch(const engine::Mailbox& mailbox, std::chrono::nanoseconds limit,
                     const Clock& clock, Hangs hangs)
    : thread_([this, &mailbox, limit, &clock, hangs = std::move(hangs)](std::stop_token stop) {
        const auto pause = std::clamp(limit / 20, kShortestPause, kLongestPause);
        Unread unread(2 * pause);
        std::unique_lock lock(mutex_);
        while (!stopped_.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
          if (unread.look(mailbox.reading(), clock.now()) >= limit) return hangs(limit);
        }
      }) {}

void end_hung(std::chrono::nanoseconds limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
  const std::string reason = "the engine hangs: it has taken no message of the coordinator for " +
                             std::to_string(seconds) + " s (--progress-deadline)";
  log_error("app", reason, {{"exit_code", static_cast<int>(protocol::Exit::kCrash)}});
  write_termination_message(reason);
  _exit(static_cast<int>(protocol::Exit::kCrash));
}

}  // namespace weir::app
