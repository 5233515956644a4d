// SPDX-License-Identifier: Apache-2.0
// Rules of all tiers (operator/tuner/README.md "Outcome", "Escalation", "Tiers"). Pure. Only this
// room includes it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "operator/tuner/tune.h"
#include "worker/base/gain.h"

namespace weir::tuner {

inline constexpr double kMedian = 0.5;  // quantile
// A link is bound if a transfer takes this part of the slowest stage's time; no order helps then.
inline constexpr double kBoundShare = 0.9;
inline constexpr int kWinsNeeded = 2;           // evaluations in a row that must favour a change
inline constexpr double kSlower = 0.03;         // a step that is slower by more is rolled back
inline constexpr double kMissedPart = 1.0 / 3;  // least part of the promised time to be saved
inline constexpr std::int64_t kQuarantineSteps = 100;
inline constexpr std::chrono::seconds kMostCooldown{3600};

// Compares the outcome of a change with its prediction. Both times of the outcome must be > 0.
inline Verdict verdict_of(const Outcome& outcome) {
  if (outcome.after_seconds > outcome.before_seconds * (1 + kSlower)) return Verdict::kRollback;
  const double gain = throughput_gain(outcome.before_seconds, outcome.after_seconds);
  const bool missed = saved_part(gain) < saved_part(outcome.predicted_gain) * kMissedPart;
  return missed ? Verdict::kMissed : Verdict::kKeep;
}

// The cooldown after a change: halved if the change kept its promise, else doubled.
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
