// SPDX-License-Identifier: Apache-2.0
// Time in which an op did not compute: its thread had no processor, or the process was stopped. The
// ops of one kind of a step do the same work, so one that takes far longer than most has paused.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/base/median.h"

namespace weir::engine {

// The time beyond their median of those ops of one kind that took over 1.5 times as long. 0 for
// fewer than 4 ops, which do not tell what is usual.
inline std::chrono::nanoseconds pauses_in(std::span<const std::chrono::nanoseconds> ops) {
  constexpr std::size_t kLeastOps = 4;
  constexpr double kOutlier = 1.5;
  if (ops.size() < kLeastOps) return {};
  std::vector<double> times;
  for (const std::chrono::nanoseconds op : ops) times.push_back(static_cast<double>(op.count()));
  const double usual = median(times);
  double beyond = 0;
  for (const double time : times) {
    if (time > kOutlier * usual) beyond += time - usual;
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(beyond));
}

}  // namespace weir::engine
