// SPDX-License-Identifier: Apache-2.0
#include "worker/app/stop_signals.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>
#include <utility>

#include "worker/app/steps.h"
#include "worker/base/check.h"
#include "worker/base/log.h"

namespace weir::app {
namespace {

using std::chrono::steady_clock;

constexpr std::array<int, 2> kSignals = {SIGTERM, SIGINT};
constexpr char kEnd = 0;  // in the pipe; signals are their numbers

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): a handler has no other place
std::atomic<int> write_end{-1};
std::atomic<pid_t> owner{0};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void on_signal(int number) {
  const int error = errno;
  if (getpid() == owner) {
    const char byte = static_cast<char>(number);
    [[maybe_unused]] const ssize_t written = ::write(write_end, &byte, 1);
  } else {
    signal(number, SIG_DFL);
    raise(number);
  }
  errno = error;
}

[[noreturn]] void end_now(const char* why) {
  log_warn("app", why);
  _exit(static_cast<int>(Exit::kTerminated));
}

// Milliseconds for poll(), rounded up; -1 without a deadline.
int wait_of(const std::optional<steady_clock::time_point>& deadline) {
  if (!deadline) return -1;
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(1);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - steady_clock::now());
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), kLongest).count());
}

}  // namespace

StopSignals::StopSignals(std::function<void()> first, std::chrono::nanoseconds grace) {
  WEIR_CHECK(write_end < 0, "one object at a time");
  WEIR_CHECK(::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) == 0, "a pipe for signals");
  owner = getpid();
  write_end = pipe_[1];
  reader_ = std::thread([this, action = std::move(first), grace] { read(action, grace); });
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  [[maybe_unused]] const ssize_t written = ::write(pipe_[1], &kEnd, 1);
  reader_.join();
  // Both ends stay open: a handler of another thread may be about to write.
}

void StopSignals::read(const std::function<void()>& first, std::chrono::nanoseconds grace) const {
  pthread_setname_np(pthread_self(), "weir-signals");
  std::optional<steady_clock::time_point> deadline;
  while (true) {
    pollfd one{.fd = pipe_[0], .events = POLLIN, .revents = 0};
    ::poll(&one, 1, wait_of(deadline));
    char byte = kEnd;
    if (::read(pipe_[0], &byte, 1) != 1) {
      if (deadline && steady_clock::now() >= *deadline) end_now("the grace after SIGTERM is over");
      continue;
    }
    if (byte == kEnd) return;
    if (deadline) end_now("a second signal ends the process");
    deadline = steady_clock::now() + grace;
    first();
  }
}

}  // namespace weir::app
