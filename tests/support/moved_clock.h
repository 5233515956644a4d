// SPDX-License-Identifier: Apache-2.0
// The real time, moved on at once by every sleep: what is timed is work, and waits cost nothing.
// One thread.
#pragma once

#include <algorithm>
#include <chrono>

#include "worker/base/clock.h"

namespace weir::test {

class MovedClock final : public Clock {
 public:
  SteadyTime now() const override { return std::chrono::steady_clock::now() + moved_; }
  SystemTime system_now() const override {  // from 2026-01-01, when FakeTransport makes objects
    return SystemTime(std::chrono::hours(24 * 20'454)) +
           std::chrono::duration_cast<SystemTime::duration>(now() - start_);
  }
  bool sleep_until(SteadyTime deadline, std::stop_token) override {
    moved_ += std::max(SteadyTime::duration(0), deadline - now());
    return true;
  }
  void move(std::chrono::seconds by) { moved_ += by; }

 private:
  const SteadyTime start_ = std::chrono::steady_clock::now();
  SteadyTime::duration moved_{0};
};

}  // namespace weir::test
