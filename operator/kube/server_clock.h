// SPDX-License-Identifier: Apache-2.0
// The API server's wall clock, taken from the header Date of its answers. Times in objects come
// from the server or from a former leader, so a replica whose own clock is wrong still judges
// deadlines correctly. Between answers the clock follows the steady clock, so a jump of the
// machine's wall clock changes nothing. Thread-safe.
#pragma once

#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "worker/base/clock.h"

namespace weir::kube {

class ServerClock final : public Clock {
 public:
  explicit ServerClock(Clock& machine) : machine_(machine) {}

  SteadyTime now() const override { return machine_.now(); }
  // The machine's own time until the first answer. Afterwards the error is at most 1 s plus the
  // time of the fastest answer.
  SystemTime system_now() const override;
  bool sleep_until(SteadyTime deadline, std::stop_token stop) override {
    return machine_.sleep_until(deadline, std::move(stop));
  }

  // Call it for each answer. date: header Date (RFC 9110, whole seconds); other texts are ignored.
  void saw(const std::string& date, SteadyTime sent, SteadyTime received);

 private:
  Clock& machine_;
  mutable std::mutex mutex_;                   // guards both below
  std::optional<SteadyTime::duration> ahead_;  // server's wall clock minus our steady clock
  int contradictions_ = 0;                     // answers in a row that differ by kJump or more
};

}  // namespace weir::kube
