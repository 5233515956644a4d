// SPDX-License-Identifier: Apache-2.0
// A clock that moves only when the test says so. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "worker/base/clock.h"

namespace weir::test {

class ManualClock final : public Clock {
 public:
  SteadyTime now() const override {
    const std::lock_guard lock(mutex_);
    return SteadyTime(std::chrono::hours(1)) + passed_;
  }
  SystemTime system_now() const override {
    const std::lock_guard lock(mutex_);
    return SystemTime(std::chrono::hours(24 * 365 * 55)) + passed_;
  }
  bool sleep_until(SteadyTime deadline, std::stop_token stop) override {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, stop,
                [&] { return SteadyTime(std::chrono::hours(1)) + passed_ >= deadline; });
    return !stop.stop_requested();
  }
  void advance(std::chrono::nanoseconds by) {
    {
      const std::lock_guard lock(mutex_);
      passed_ += by;
    }
    moved_.notify_all();
  }

 private:
  mutable std::mutex mutex_;  // guards passed_
  std::condition_variable_any moved_;
  std::chrono::nanoseconds passed_{0};
};

}  // namespace weir::test
