// SPDX-License-Identifier: Apache-2.0
// Token bucket that limits our requests to the API server. Thread-safe. It never sleeps, but
// returns until when to sleep.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>

#include "worker/base/clock.h"

namespace weir::kube {

class RateLimit {
 public:
  RateLimit(double per_second, double burst) : rate_(per_second), burst_(burst), left_(burst) {}

  // Takes one token, on credit if there is none. Returns when the caller may send.
  SteadyTime take(SteadyTime now) {
    const std::lock_guard lock(mutex_);
    if (last_ != SteadyTime{}) {
      left_ += std::chrono::duration<double>(now - last_).count() * rate_;
    }
    last_ = std::max(last_, now);
    left_ = std::min(left_, burst_) - 1;
    if (left_ >= 0) return now;
    return now + std::chrono::duration_cast<SteadyTime::duration>(
                     std::chrono::duration<double>(-left_ / rate_));
  }

 private:
  const double rate_, burst_;
  std::mutex mutex_;  // guards all below
  double left_;       // tokens; below 0 = callers are waiting
  SteadyTime last_{};
};

}  // namespace weir::kube
