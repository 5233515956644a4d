// SPDX-License-Identifier: Apache-2.0
// SIGTERM and SIGINT in a process whose threads belong to somebody else: masks would not reach
// those threads, and children would inherit them. Handlers write to a pipe that a thread reads.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

namespace weir::app {

// One at a time in a process. A child that was forked and has not called exec has the default
// actions.
class StopSignals {
 public:
  // first: called at the first signal, by a thread of this class. A second one ends the process
  // with exit code 143, and so does the end of the grace after the first one: code that computes
  // for ever cannot hold up either of them.
  StopSignals(std::function<void()> first, std::chrono::nanoseconds grace);
  ~StopSignals();  // puts the handlers of before back
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void read(const std::function<void()>& first, std::chrono::nanoseconds grace) const;

  std::array<int, 2> pipe_{-1, -1};
  std::array<struct sigaction, 2> before_{};
  std::thread reader_;
};

}  // namespace weir::app
