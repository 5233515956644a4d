// SPDX-License-Identifier: Apache-2.0
// Sizes and rates as types, because bits and bytes are easily confused. Times are std::chrono.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

namespace weir {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Bytes {
  std::int64_t value = 0;
  auto operator<=>(const Bytes&) const = default;
};

struct BytesPerSecond {
  double value = 0;
  auto operator<=>(const BytesPerSecond&) const = default;
};

constexpr BytesPerSecond megabits_per_second(double mbit) {
  return {mbit * 1e6 / 8};
}
constexpr double to_megabits(BytesPerSecond rate) {
  return rate.value * 8 / 1e6;
}

constexpr double to_seconds(std::chrono::nanoseconds t) {
  return std::chrono::duration<double>(t).count();
}
// 64 bits of nanoseconds reach 292 years. from_seconds limits its result to 100 years, also for
// nan, so that it does not overflow and the sum of two results does not either. Code that reads
// input refuses such values with a message.
constexpr double kLongestSeconds = 100 * 365.25 * 86400;
constexpr std::chrono::nanoseconds from_seconds(double s) {
  if (!(s < kLongestSeconds)) s = kLongestSeconds;
  if (s < -kLongestSeconds) s = -kLongestSeconds;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(s * 1e9 + (s < 0 ? -0.5 : 0.5)));
}

}  // namespace weir
