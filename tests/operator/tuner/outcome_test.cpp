// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "operator/tuner/tune.h"

namespace weir::tuner {
namespace outcome_test {

using namespace std::chrono_literals;
using testing::IsEmpty;

const schedule::Schedule kPlan{.dispatch = schedule::Dispatch::kHint, .k = 2, .caps = {7, 5, 3, 1}};

Judged judged(double before, double after, double predicted, bool unchanged = true,
              State state = {}) {
  return judge({before, after, predicted, unchanged}, kPlan, 500, Settings{}, state);
}

TEST(Outcome, AGainAsPredictedIsKept) {
  const Judged result = judged(1.5, 1.2, 0.22);
  EXPECT_EQ(result.verdict, Verdict::kKeep);
  EXPECT_NEAR(result.measured_gain, 0.25, 1e-9);
  EXPECT_EQ(result.state.cooldown, 60s);
  EXPECT_THAT(result.state.quarantine, IsEmpty());
}

TEST(Outcome, SlowerByMoreThan3PercentGoesBackIntoQuarantine) {
  const Judged result = judged(1.0, 1.04, 0.2);
  EXPECT_EQ(result.verdict, Verdict::kRollback);
  EXPECT_EQ(result.state.quarantine.at("k=2 caps 7,5,3,1 Hint"), 600);
  EXPECT_EQ(result.state.last_change_step, 500);
  EXPECT_EQ(result.state.cooldown, 120s);
}

TEST(Outcome, SlightlySlowerIsAMissedGain) {
  EXPECT_EQ(judged(1.0, 1.02, 0.2).verdict, Verdict::kMissed);
}

TEST(Outcome, LessThanAThirdIsMissedAndDoublesTheCooldown) {
  Judged result = judged(1.0, 0.95, 0.2);
  EXPECT_EQ(result.verdict, Verdict::kMissed);
  EXPECT_EQ(result.state.cooldown, 120s);
  for (int i = 0; i < 10; ++i) result = judged(1.0, 0.95, 0.2, true, result.state);
  EXPECT_EQ(result.state.cooldown, 3600s) << "at most an hour";
  result = judged(1.0, 0.9, 0.2, true, result.state);
  EXPECT_EQ(result.verdict, Verdict::kKeep);
  EXPECT_EQ(result.state.cooldown, 1800s) << "halved after a hit";
}

TEST(Outcome, WithOtherRatesNothingIsJudged) {
  const Judged result = judged(1.0, 1.5, 0.2, false);
  EXPECT_EQ(result.verdict, Verdict::kKeep);
  EXPECT_NEAR(result.measured_gain, -1.0 / 3, 1e-9);
  EXPECT_EQ(result.state.cooldown, 0s);
}

TEST(Outcome, WithoutMeasurementNothingIsJudged) {
  EXPECT_EQ(judged(0, 1.5, 0.2).verdict, Verdict::kKeep);
  EXPECT_EQ(judged(1, 0, 0.2).measured_gain, 0);
}

}  // namespace outcome_test
}  // namespace weir::tuner
