// SPDX-License-Identifier: Apache-2.0
// Constants and texts that this room shares (operator/tuner/README.md "Escalation"). Pure. Only
// this room includes it.
#pragma once

#include <cstdio>
#include <string>

namespace weir::tuner {

inline constexpr double kMedian = 0.5;  // quantile
// A link is bound if a transfer takes this part of the slowest stage's time; no order helps then.
inline constexpr double kBoundShare = 0.9;

template <class... Numbers>
std::string text(const char* format, Numbers... numbers) {
  char buffer[200];
  std::snprintf(buffer, sizeof buffer, format, numbers...);
  return buffer;
}

}  // namespace weir::tuner
