// SPDX-License-Identifier: Apache-2.0
// A wire between two ranks that a test can cut, freeze or damage: accepts on a port of its own and
// forwards to a target port on loopback.
#pragma once

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <fcntl.h>
#include <functional>
#include <netinet/in.h>
#include <poll.h>
#include <span>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weir::transport::test {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

// A connected socket, or -1.
inline int dial(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

// A listening socket on any free port, and that port.
inline std::pair<int, int> listen_anywhere() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  ::bind(fd, reinterpret_cast<const sockaddr*>(&address), size);
  ::listen(fd, 16);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return {fd, ntohs(address.sin_port)};
}

class Relay {
 public:
  using Damage = std::function<void(std::span<char> bytes)>;  // of what passes; by its thread
  explicit Relay(int target_port, Damage damage = nullptr)
      : target_port_(target_port), damage_(std::move(damage)) {
    std::tie(listener_, port_) = listen_anywhere();
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~Relay() {
    thread_.request_stop();
    thread_.join();
    for (const auto& [a, b] : pairs_) {
      ::close(a);
      ::close(b);
    }
    ::close(listener_);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int port() const { return port_; }
  std::size_t forwarded() const { return forwarded_; }
  void freeze() { frozen_ = true; }          // connections stay, nothing moves any more
  void cut() { cut_ = true; }                // closes all
  void cut_one() { cut_one_ = true; }        // closes the newest
  void reset_one() { reset_one_ = true; }    // the same, as a host that has forgotten it
  void freeze_one() { frozen_one_ = true; }  // the same as freeze() for the newest only

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (cut_) close_all();
      if (cut_one_.exchange(false) && !pairs_.empty()) drop(pairs_.back().first);
      if (reset_one_.exchange(false) && !pairs_.empty()) {
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        for (const int fd : {pairs_.back().first, pairs_.back().second}) {
          ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        }
        drop(pairs_.back().first);
      }
      std::vector<pollfd> polled{{.fd = listener_, .events = POLLIN, .revents = 0}};
      for (const auto& [a, b] : pairs_) {
        polled.push_back({.fd = a, .events = POLLIN, .revents = 0});
        polled.push_back({.fd = b, .events = POLLIN, .revents = 0});
      }
      constexpr int kMilliseconds = 5;
      if (frozen_one_ && !pairs_.empty()) polled.end()[-1].fd = polled.end()[-2].fd = -1;
      if (frozen_) polled.clear();
      if (::poll(polled.data(), polled.size(), kMilliseconds) <= 0 || frozen_) continue;
      const auto pairs = pairs_;
      for (std::size_t i = 1; i < polled.size(); ++i) {
        const auto& [a, b] = pairs[(i - 1) / 2];
        if (polled[i].revents != 0) forward(polled[i].fd, polled[i].fd == a ? b : a);
      }
      if (polled[0].revents != 0) accept();
    }
  }

  void accept() {
    const int a = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int b = dial(target_port_);
    if (a >= 0 && b >= 0) pairs_.emplace_back(a, b);
  }

  void forward(int from, int to) {
    std::array<char, 65536> buffer{};
    const ssize_t count = ::recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count <= 0) {
      if (count == 0) ::shutdown(to, SHUT_WR);
      if (count == 0 || errno != EAGAIN) drop(from);
      return;
    }
    if (damage_) damage_(std::span(buffer).first(static_cast<std::size_t>(count)));
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t part =
          ::send(to, buffer.data() + sent, static_cast<std::size_t>(count - sent), MSG_NOSIGNAL);
      if (part <= 0) return;
      sent += part;
    }
    forwarded_ += static_cast<std::size_t>(count);
  }

  void drop(int fd) {
    std::erase_if(pairs_, [fd](const auto& pair) {
      if (pair.first != fd && pair.second != fd) return false;
      ::close(pair.first);
      ::close(pair.second);
      return true;
    });
  }

  void close_all() {
    while (!pairs_.empty()) drop(pairs_.back().first);
  }

  const int target_port_;
  const Damage damage_;
  int listener_ = -1;
  int port_ = 0;
  std::vector<std::pair<int, int>> pairs_;
  std::atomic<std::size_t> forwarded_ = 0;
  std::atomic<bool> frozen_ = false;
  std::atomic<bool> cut_ = false;
  std::atomic<bool> cut_one_ = false, reset_one_ = false;
  std::atomic<bool> frozen_one_ = false;
  std::jthread thread_;
};

}  // namespace weir::transport::test
