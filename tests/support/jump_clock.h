// SPDX-License-Identifier: Apache-2.0
// A clock for single-threaded tests: sleeping moves it at once and is written down.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

#include "worker/base/clock.h"

namespace weir::test {

class JumpClock final : public Clock {
 public:
  SteadyTime now() const override {
    const std::lock_guard lock(mutex_);
    return kStart + passed_;
  }
  SystemTime system_now() const override {
    const std::lock_guard lock(mutex_);
    return SystemTime(std::chrono::hours(24 * 365 * 55)) + passed_;
  }
  bool sleep_until(SteadyTime deadline, std::stop_token stop) override {
    if (stop.stop_requested()) return false;
    const std::lock_guard lock(mutex_);
    if (deadline > kStart + passed_) {
      slept_.push_back(
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - kStart - passed_));
      passed_ = deadline - kStart;
    }
    return true;
  }
  void advance(std::chrono::nanoseconds by) {
    const std::lock_guard lock(mutex_);
    passed_ += by;
  }
  std::vector<std::chrono::milliseconds> slept() const {
    const std::lock_guard lock(mutex_);
    return slept_;
  }

 private:
  static constexpr SteadyTime kStart{std::chrono::hours(1)};
  mutable std::mutex mutex_;  // guards all below
  std::chrono::nanoseconds passed_{0};
  std::vector<std::chrono::milliseconds> slept_;
};

}  // namespace weir::test
