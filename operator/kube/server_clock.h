// SPDX-License-Identifier: Apache-2.0
// The API server's wall clock, from the Date of its answers, so that a replica whose own clock is
// wrong judges deadlines as any other: times in objects come from the server or from a leader
// before. Between answers it goes on with the steady clock; a jump of our wall clock changes
// nothing. Thread-safe.
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
  // The machine's own until the first answer; after that, wrong by at most 1 s and the time that
  // the quickest answer took.
  SystemTime system_now() const override;
  bool sleep_until(SteadyTime deadline, std::stop_token stop) override {
    return machine_.sleep_until(deadline, std::move(stop));
  }

  // An answer with header Date (RFC 9110, whole seconds) to a request sent then and received then.
  // Any other text is ignored.
  void saw(const std::string& date, SteadyTime sent, SteadyTime received);

 private:
  Clock& machine_;
  mutable std::mutex mutex_;                   // guards both below
  std::optional<SteadyTime::duration> ahead_;  // server's wall clock minus our steady clock
  int contradictions_ = 0;                     // answers in a row that differ by a jump
};

}  // namespace weir::kube
