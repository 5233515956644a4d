// SPDX-License-Identifier: Apache-2.0
// How the outcome of a retuning is judged.
#include <gmock/gmock.h>

#include "operator/adaptation/gate/gate.h"

namespace weir::gate {
namespace outcome_test {

using namespace std::chrono_literals;
using testing::IsEmpty;

Judged judged(double before, double after, double predicted, bool unchanged = true,
              const Clock& clock = {}) {
  return judge({before, after, predicted, unchanged}, "k=2 caps 7,5,3,1 Hint", 500, Rules{}, clock,
               {});
}

TEST(Outcome, AGainAsPredictedIsKept) {
  const Judged result = judged(1.5, 1.2, 0.22);
  EXPECT_EQ(result.verdict, Verdict::kKeep);
  EXPECT_NEAR(result.measured_gain, 0.25, 1e-9);
  EXPECT_EQ(result.clock.cooldown, 60s);
  EXPECT_THAT(result.record.quarantine, IsEmpty());
}

TEST(Outcome, SlowerByMoreThan3PercentGoesBackIntoQuarantine) {
  const Judged result = judged(1.0, 1.04, 0.2);
  EXPECT_EQ(result.verdict, Verdict::kRollback);
  EXPECT_EQ(result.record.quarantine.at("k=2 caps 7,5,3,1 Hint"), 600);
  EXPECT_EQ(result.clock.cooldown, 120s);
}

TEST(Outcome, SlightlySlowerIsAMissedGain) {
  EXPECT_EQ(judged(1.0, 1.02, 0.2).verdict, Verdict::kMissed);
}

TEST(Outcome, LessThanAThirdIsMissedAndDoublesTheCooldown) {
  Judged result = judged(1.0, 0.95, 0.2);
  EXPECT_EQ(result.verdict, Verdict::kMissed);
  EXPECT_EQ(result.clock.cooldown, 120s);
  for (int i = 0; i < 10; ++i) result = judged(1.0, 0.95, 0.2, true, result.clock);
  EXPECT_EQ(result.clock.cooldown, 3600s) << "at most an hour";
  result = judged(1.0, 0.9, 0.2, true, result.clock);
  EXPECT_EQ(result.verdict, Verdict::kKeep);
  EXPECT_EQ(result.clock.cooldown, 1800s) << "halved after a hit";
}

TEST(Outcome, WithOtherRatesNothingIsJudged) {
  const Judged result = judged(1.0, 1.5, 0.2, false);
  EXPECT_EQ(result.verdict, Verdict::kKeep);
  EXPECT_NEAR(result.measured_gain, -1.0 / 3, 1e-9);
  EXPECT_EQ(result.clock.cooldown, 0s);
}

TEST(Outcome, WithoutMeasurementNothingIsJudged) {
  EXPECT_EQ(judged(0, 1.5, 0.2).verdict, Verdict::kKeep);
  EXPECT_EQ(judged(1, 0, 0.2).measured_gain, 0);
}

TEST(Outcome, IsOneSentence) {
  const Measured measured{1, 0.8, 0.3, true};
  Judged result = judged(1, 0.8, 0.3);
  EXPECT_EQ(outcome_text(7, "4->3 stages", measured, result, 12),
            "revision 7 (4->3 stages): measured +25.0 % over 12 steps (predicted +30.0 %), step "
            "1.00 s -> 0.80 s");
  EXPECT_EQ(outcome_text(7, "", measured, result, 12).substr(0, 20), "revision 7: measured");
  EXPECT_EQ(missed_text(measured, result), "measured gain 25.0 %, predicted 30.0 %");
}

}  // namespace outcome_test
}  // namespace weir::gate
