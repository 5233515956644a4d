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

  // Returns when something may have happened; ready(i) then says whether descriptor i has input.
  // Engine thread.
  void wait(std::chrono::steady_clock::time_point deadline, const std::stop_token& stop);
  bool ready(std::size_t i) const { return polled_[i + 1].revents != 0; }
  void drop(std::size_t i) { polled_[i + 1].fd = -1; }  // poll() passes over it

  void wake() noexcept;  // any thread

 private:
  int event_ = -1;
  std::vector<pollfd> polled_;  // the event, then the descriptors
};

}  // namespace weir::transport::tcp
