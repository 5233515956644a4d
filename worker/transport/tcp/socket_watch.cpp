// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/socket_watch.h"

#include <array>
#include <sys/epoll.h>

#include "worker/base/check.h"

namespace weir::transport::tcp {
namespace {

constexpr std::uint32_t kBroken = EPOLLERR | EPOLLHUP;
constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDHUP;
constexpr std::size_t kEventsAtOnce = 16;

epoll_event event_of(std::uint64_t id, bool readable, bool writable) {
  epoll_event event{};
  event.events = EPOLLONESHOT;
  if (readable) event.events |= kReadable;
  if (writable) event.events |= EPOLLOUT;
  event.data.u64 = id;
  return event;
}

}  // namespace

SocketWatch::SocketWatch(boost::asio::io_context& context)
    : epoll_(context, ::epoll_create1(EPOLL_CLOEXEC)) {
  WEIR_CHECK(epoll_.native_handle() >= 0, "a descriptor for the sockets' events");
}

void SocketWatch::start() {
  await();
}

void SocketWatch::stop() {
  boost::system::error_code ignored;
  epoll_.cancel(ignored);
}

std::uint64_t SocketWatch::add(int descriptor, Handler handler) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = ++last_id_;
  watched_[id] = {descriptor, std::make_shared<Handler>(std::move(handler))};
  epoll_event event = event_of(id, false, false);
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, descriptor, &event);
  return id;
}

void SocketWatch::ask(std::uint64_t id, bool readable, bool writable) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  epoll_event event = event_of(id, readable, writable);
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_MOD, found->second.descriptor, &event);
}

void SocketWatch::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(id);
  if (found == watched_.end()) return;
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, found->second.descriptor, nullptr);
  watched_.erase(found);
}

void SocketWatch::await() {
  epoll_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this, keep = shared_from_this()](boost::system::error_code error) {
                      if (error) return;
                      dispatch();
                      await();
                    });
}

void SocketWatch::dispatch() {
  std::array<epoll_event, kEventsAtOnce> events{};
  const int count = ::epoll_wait(epoll_.native_handle(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    std::shared_ptr<Handler> handler;
    {
      const std::lock_guard lock(mutex_);
      const auto found = watched_.find(event.data.u64);
      if (found != watched_.end()) handler = found->second.handler;
    }
    if (!handler) continue;
    const bool broken = (event.events & kBroken) != 0;
    (*handler)(broken || (event.events & kReadable) != 0, broken || (event.events & EPOLLOUT) != 0);
  }
}

}  // namespace weir::transport::tcp
