// SPDX-License-Identifier: Apache-2.0
// How the engine thread waits: for sockets, a deadline, a stop request, or another thread's wake().
#pragma once

#include <chrono>
#include <poll.h>
#include <span>
#include <stop_token>
#include <vector>

namespace weir::transport::tcp {

class EnginePoll {
 public:
  EnginePoll();
  ~EnginePoll();
  EnginePoll(const EnginePoll&) = delete;
  EnginePoll& operator=(const EnginePoll&) = delete;

  void add(int descriptor);  // before the first wait()

  // Returns when something may have happened; then readable(i) and writable(i) say what. Engine
  // thread.
  void wait(std::chrono::steady_clock::time_point deadline, const std::stop_token& stop);
  bool readable(std::size_t i) const { return (polled_[i + 1].revents & ~POLLOUT) != 0; }
  bool writable(std::size_t i) const { return (polled_[i + 1].revents & ~POLLIN) != 0; }
  void ask_writable(std::size_t i, bool wanted) {
    polled_[i + 1].events = wanted ? POLLIN | POLLOUT : POLLIN;
  }
  void drop(std::size_t i) { polled_[i + 1].fd = -1; }  // poll() passes over it

  void wake() noexcept;  // any thread

 private:
  int event_ = -1;
  std::vector<pollfd> polled_;  // the event, then the descriptors
};

}  // namespace weir::transport::tcp
