// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/engine_poll.h"

#include <algorithm>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "worker/base/check.h"

namespace weir::transport::tcp {

EnginePoll::EnginePoll() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  WEIR_CHECK(event_ >= 0, "a descriptor for the engine's wait");
  polled_.push_back({.fd = event_, .events = POLLIN, .revents = 0});
}

EnginePoll::~EnginePoll() {
  ::close(event_);
}

void EnginePoll::add(int descriptor) {
  polled_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
}

void EnginePoll::wait(std::chrono::steady_clock::time_point deadline, const std::stop_token& stop) {
  using std::chrono::nanoseconds;
  for (pollfd& one : polled_) one.revents = 0;
  const std::stop_callback stopped(stop, [this] { wake(); });
  constexpr nanoseconds kLongest = std::chrono::hours(1);  // the caller looks at its deadline again
  const auto left = deadline - std::chrono::steady_clock::now();
  const nanoseconds time = std::clamp<nanoseconds>(left, nanoseconds(0), kLongest);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()};
  const int count = ::ppoll(polled_.data(), polled_.size(), &limit, nullptr);
  if (count <= 0) {  // time, or a signal
    for (pollfd& one : polled_) one.revents = 0;
    return;
  }
  if (polled_[0].revents != 0) {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(event_, &ignored, sizeof ignored);
  }
}

void EnginePoll::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t bytes = ::write(event_, &one, sizeof one);
}

}  // namespace weir::transport::tcp
