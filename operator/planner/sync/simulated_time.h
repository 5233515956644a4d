// SPDX-License-Identifier: Apache-2.0
// Seconds as the event simulator takes them: it counts nanoseconds in 64 bits. Pure.
#pragma once

#include <chrono>

#include "worker/base/units.h"

namespace weir::planner {

// For one op or transfer; a plan with longer ones is as bad as one with these.
constexpr double kLongestSimulated = 1e5;

constexpr std::chrono::nanoseconds simulated_time(double seconds) {
  return from_seconds(seconds < kLongestSimulated ? seconds : kLongestSimulated);
}

}  // namespace weir::planner
