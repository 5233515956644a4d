// SPDX-License-Identifier: Apache-2.0
// The rules of all tiers (operator/tuner/README.md "Outcome", "Escalation", "Tiers"). Pure.
// Only the tuner's own sources include this.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "operator/tuner/tune.h"
#include "worker/base/gain.h"

namespace weir::tuner {

inline constexpr double kMedian = 0.5;          // quantile
inline constexpr double kBoundShare = 0.9;      // no order helps a link slower than that
inline constexpr int kWinsNeeded = 2;           // evaluations in a row, before a change
inline constexpr double kSlower = 0.03;         // rolled back beyond it
inline constexpr double kMissedPart = 1.0 / 3;  // of the time that was to be saved
inline constexpr std::int64_t kQuarantineSteps = 100;
inline constexpr std::chrono::seconds kMostCooldown{3600};

// Did a change do what was predicted? Both times of the outcome > 0.
inline Verdict verdict_of(const Outcome& outcome) {
  if (outcome.after_seconds > outcome.before_seconds * (1 + kSlower)) return Verdict::kRollback;
  const double gain = throughput_gain(outcome.before_seconds, outcome.after_seconds);
  const bool missed = saved_part(gain) < saved_part(outcome.predicted_gain) * kMissedPart;
  return missed ? Verdict::kMissed : Verdict::kKeep;
}

// The pause before the next change: longer after one that did not do what was predicted.
inline std::chrono::seconds next_cooldown(Verdict verdict, std::chrono::seconds setting,
                                          std::chrono::seconds now) {
  const std::chrono::seconds cooldown = std::max(setting, now);
  if (verdict == Verdict::kKeep) return std::max(setting, cooldown / 2);
  return std::min(kMostCooldown, 2 * cooldown);
}

template <class... Numbers>
std::string text(const char* format, Numbers... numbers) {
  char buffer[200];
  std::snprintf(buffer, sizeof buffer, format, numbers...);
  return buffer;
}

}  // namespace weir::tuner
