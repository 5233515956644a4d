// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/engine_poll.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "worker/base/check.h"

namespace weir::transport::tcp {
namespace {

constexpr std::uint64_t kEvent = ~std::uint64_t{0};  // other values are indexes of descriptors
constexpr std::size_t kEventsAtOnce = 16;

timespec timespec_of(std::chrono::nanoseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()};
}

epoll_event event_of(std::uint64_t what, bool writable) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (writable) event.events |= EPOLLOUT;
  event.data.u64 = what;
  return event;
}

}  // namespace

EnginePoll::EnginePoll()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  WEIR_CHECK(epoll_ >= 0 && event_ >= 0, "descriptors for the engine's wait");
  epoll_event event = event_of(kEvent, false);
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &event);
}

EnginePoll::~EnginePoll() {
  ::close(epoll_);
  ::close(event_);
}

void EnginePoll::add(int descriptor) {
  epoll_event event = event_of(watched_.size(), false);
  watched_.push_back({.descriptor = descriptor});
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
}

void EnginePoll::ask_writable(std::size_t i, bool wanted) {
  watched_[i].wanted = wanted;
  if (wanted && !watched_[i].asked) ask(i, true);
}

void EnginePoll::ask(std::size_t i, bool writable) {
  watched_[i].asked = writable;
  if (watched_[i].descriptor < 0) return;
  epoll_event event = event_of(i, writable);
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, watched_[i].descriptor, &event);
}

void EnginePoll::drop(std::size_t i) {
  if (watched_[i].descriptor < 0) return;
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, watched_[i].descriptor, nullptr);
  watched_[i].descriptor = -1;
}

void EnginePoll::wait(std::chrono::steady_clock::time_point deadline, const std::stop_token& stop) {
  using std::chrono::nanoseconds;
  for (Watched& one : watched_) one.readable = one.writable = false;
  const std::stop_callback stopped(stop, [this] { wake(); });
  // The caller checks its own deadline again.
  constexpr nanoseconds kLongest = std::chrono::hours(1);
  const auto left = deadline - std::chrono::steady_clock::now();
  const timespec limit = timespec_of(std::clamp<nanoseconds>(left, nanoseconds(0), kLongest));

  std::array<epoll_event, kEventsAtOnce> events{};
  int count = ::epoll_pwait2(epoll_, events.data(), events.size(), &limit, nullptr);
  if (count < 0 && errno == ENOSYS) {  // on Linux before 5.11
    pollfd one{.fd = epoll_, .events = POLLIN, .revents = 0};
    ::ppoll(&one, 1, &limit, nullptr);
    count = ::epoll_wait(epoll_, events.data(), events.size(), 0);
  }
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kEvent) {
      std::uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t bytes = ::read(event_, &ignored, sizeof ignored);
    } else {
      note(event.data.u64, event.events);
    }
  }
}

void EnginePoll::note(std::size_t i, std::uint32_t events) {
  Watched& one = watched_[i];
  one.readable = (events & ~std::uint32_t{EPOLLOUT}) != 0;
  one.writable = one.wanted && (events & ~std::uint32_t{EPOLLIN}) != 0;
  if (one.asked && !one.wanted && (events & EPOLLOUT) != 0) ask(i, false);
}

void EnginePoll::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t bytes = ::write(event_, &one, sizeof one);
}

}  // namespace weir::transport::tcp
