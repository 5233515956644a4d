// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/gate/calibration.h"

#include <algorithm>
#include <cmath>

#include "worker/base/text.h"

namespace weir::gate {
namespace {

constexpr double kRemembered = 0.95;
// Their ratio keeps one of five measurements outside.
constexpr double kAfterMiss = 0.08, kAfterHit = 0.02;
constexpr double kLeastQuantile = 0.6, kMostQuantile = 4;

double log_error(const Observation& observation) {
  return std::log((1 + observation.measured) / (1 + observation.predicted));
}

TierErrors& errors_of(Calibration& calibration, Tier tier) {
  if (tier == Tier::kReplace) return calibration.replace;
  return tier == Tier::kRegroup ? calibration.regroup : calibration.retune;
}

}  // namespace

const char* name(Tier tier) {
  if (tier == Tier::kReplace) return "replace";
  return tier == Tier::kRegroup ? "regroup" : "retune";
}

const TierErrors& Calibration::of(Tier tier) const {
  if (tier == Tier::kReplace) return replace;
  return tier == Tier::kRegroup ? regroup : retune;
}

double Calibration::error(Tier tier) const {
  return std::sqrt(of(tier).variance);
}

Interval Calibration::around(double gain, Tier tier) const {
  const double factor = std::exp(of(tier).quantile * error(tier));
  return {.low = (1 + gain) / factor - 1, .high = (1 + gain) * factor - 1};
}

Observation observe(const Calibration& calibration, Tier tier, double predicted, double measured) {
  const Interval interval = calibration.around(predicted, tier);
  return {.tier = tier,
          .predicted = predicted,
          .measured = measured,
          .inside = interval.low <= measured && measured <= interval.high};
}

void learn(Calibration& calibration, const Observation& observation) {
  TierErrors& errors = errors_of(calibration, observation.tier);
  const double known = kRemembered * errors.weight;
  const double error = log_error(observation);
  errors.weight = known + 1;
  errors.variance = (known * errors.variance + error * error) / errors.weight;
  errors.quantile = std::clamp(errors.quantile + (observation.inside ? -kAfterHit : kAfterMiss),
                               kLeastQuantile, kMostQuantile);
}

std::string interval_text(const Interval& interval) {
  return format("%+d..%+d", static_cast<int>(std::lround(100 * interval.low)),
                static_cast<int>(std::lround(100 * interval.high)));
}

}  // namespace weir::gate
