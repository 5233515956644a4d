// SPDX-License-Identifier: Apache-2.0
// One completed step in the training log, or a validation.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace weir::eventlog {

struct Entry {
  std::int64_t step = 0;  // completed steps after it
  std::chrono::system_clock::time_point time{};
  double loss = std::numeric_limits<double>::quiet_NaN();  // NaN = not finite, or unknown
  double learning_rate = 0;
  double seconds = 0;        // of the step
  std::int64_t samples = 0;  // of the step, in all replicas
  std::int64_t tokens = 0;   // likewise
  int k = 1;
  std::uint32_t revision = 0;  // of the plan
  // If it is set, this is a validation after the step, and the fields behind `time` mean nothing.
  std::optional<double> validation_loss = {};
};

inline double samples_per_second(const Entry& entry) {
  return entry.seconds > 0 ? static_cast<double>(entry.samples) / entry.seconds : 0;
}

}  // namespace weir::eventlog
