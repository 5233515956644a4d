// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/gate/calibration.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::gate {
namespace calibration_test {

double normal(Random& random) {
  const double u = 1 - random.uniform(), v = random.uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

// Predictions whose errors have that deviation; some are three times as far off.
double part_inside(double deviation, double wild_part, std::uint64_t seed) {
  constexpr int kBefore = 50, kJudged = 400;
  Calibration calibration;
  Random random(seed);
  int inside = 0;
  for (int i = 0; i < kBefore + kJudged; ++i) {
    const double predicted = 0.5 * random.uniform();
    const double scale = random.uniform() < wild_part ? 3 * deviation : deviation;
    const double measured = (1 + predicted) * std::exp(scale * normal(random)) - 1;
    const Observation judged = observe(calibration, Tier::kRegroup, predicted, measured);
    learn(calibration, judged);
    if (i >= kBefore && judged.inside) ++inside;
  }
  return static_cast<double>(inside) / kJudged;
}

TEST(Calibration, HoldsFourMeasurementsInFiveWhateverTheErrorsAre) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const double deviation : {0.01, 0.05, 0.10, 0.4}) {
      for (const double wild : {0.0, 0.1}) {
        const double inside = part_inside(deviation, wild, seed);
        EXPECT_GE(inside, 0.75) << deviation << " " << wild << " seed " << seed;
        EXPECT_LE(inside, 0.85) << deviation << " " << wild << " seed " << seed;
      }
    }
  }
}

TEST(Calibration, BeginsWithTheErrorsOfTheSimulator) {
  const Calibration fresh;

  EXPECT_DOUBLE_EQ(fresh.error(Tier::kRetune), 0.03);
  EXPECT_DOUBLE_EQ(fresh.error(Tier::kRegroup), 0.10);
  EXPECT_DOUBLE_EQ(fresh.error(Tier::kReplace), 0.15);
  const Interval interval = fresh.around(0.25, Tier::kRetune);
  EXPECT_NEAR(interval.low, 0.203, 0.001);
  EXPECT_NEAR(interval.high, 0.299, 0.001);
  EXPECT_EQ(interval_text(interval), "+20..+30");
  EXPECT_EQ(interval_text({-0.02, 0.01}), "-2..+1");
}

TEST(Calibration, LearnsForOneTierOnly) {
  Calibration calibration;

  const Observation missed = observe(calibration, Tier::kRetune, 0.3, 0.0);
  EXPECT_FALSE(missed.inside);
  learn(calibration, missed);

  EXPECT_GT(calibration.error(Tier::kRetune), 0.08);
  EXPECT_DOUBLE_EQ(calibration.retune.quantile, 1.36);
  EXPECT_DOUBLE_EQ(calibration.error(Tier::kRegroup), 0.10);
  const Observation hit = observe(calibration, Tier::kRegroup, 0.3, 0.3);
  EXPECT_TRUE(hit.inside);
  learn(calibration, hit);
  EXPECT_LT(calibration.error(Tier::kRegroup), 0.10);
  EXPECT_DOUBLE_EQ(calibration.regroup.quantile, 1.26);
}

}  // namespace calibration_test
}  // namespace weir::gate
