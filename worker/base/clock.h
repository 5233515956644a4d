// SPDX-License-Identifier: Apache-2.0
// All code asks a Clock for the time, so that tests can pass a ManualClock
// (tests/support/manual_clock.h). Thread-safe.
#pragma once

#include <chrono>
#include <stop_token>

namespace weir {

using SteadyTime = std::chrono::steady_clock::time_point;
using SystemTime = std::chrono::system_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual SteadyTime now() const = 0;         // for durations and deadlines
  virtual SystemTime system_now() const = 0;  // for time stamps that leave the process
  // Sleeps until the deadline or a stop request. Returns false if stop was requested.
  virtual bool sleep_until(SteadyTime deadline, std::stop_token stop) = 0;
};

// The real clock of the process. main makes one and passes it by reference.
class SystemClock final : public Clock {
 public:
  SteadyTime now() const override { return std::chrono::steady_clock::now(); }
  SystemTime system_now() const override { return std::chrono::system_clock::now(); }
  bool sleep_until(SteadyTime deadline, std::stop_token stop) override;
};

}  // namespace weir
