// SPDX-License-Identifier: Apache-2.0
// How far a tier's predictions have been from what was measured, and so how wide an interval around
// a prediction holds four measurements in five (operator/adaptation/gate/README.md "Intervals").
// The width in standard errors follows its own coverage: adaptive conformal inference, Gibbs and
// Candes, NeurIPS 2021. Pure.
#pragma once

#include <string>

namespace weir::gate {

enum class Tier : unsigned char { kRetune, kRegroup, kReplace };
const char* name(Tier tier);  // "retune"

struct Interval {
  double low = 0, high = 0;  // of a gain of throughput
};

struct TierErrors {
  double weight = 8;       // of all that was seen, in changes; the initial error counts as eight
  double variance = 0;     // of ln((1 + measured gain) / (1 + predicted gain))
  double quantile = 1.28;  // standard errors to either side: 80 % of a normal distribution
};

// The initial errors are those that simulated gains have had: 3, 10 and 15 %.
struct Calibration {
  TierErrors retune{.variance = 0.03 * 0.03};
  TierErrors regroup{.variance = 0.10 * 0.10};
  TierErrors replace{.variance = 0.15 * 0.15};

  const TierErrors& of(Tier tier) const;
  double error(Tier tier) const;  // standard error of a gain, as a ratio
  Interval around(double gain, Tier tier) const;
};

// A prediction that was judged. Both gains are above -1.
struct Observation {
  Tier tier = Tier::kRetune;
  double predicted = 0, measured = 0;
  bool inside = false;  // the interval that the calibration of then gave
};
Observation observe(const Calibration& calibration, Tier tier, double predicted, double measured);
// Forgets a twentieth of what it knew.
void learn(Calibration& calibration, const Observation& observation);

// In whole percents, as "+21..+31".
std::string interval_text(const Interval& interval);

}  // namespace weir::gate
