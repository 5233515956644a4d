// SPDX-License-Identifier: Apache-2.0
// How the outcome of a retuning is judged.
#include <gmock/gmock.h>

#include "operator/adaptation/gate/gate.h"

namespace weir::gate {
namespace outcome_test {

using namespace std::chrono_literals;
using testing::IsEmpty;

Judged judged(double before, double after, double predicted, const Clock& clock = {}) {
  return judge({.before_seconds = before, .after_seconds = after, .predicted_gain = predicted},
               "k=2 caps 7,5,3,1 Hint", 500, Rules{}, clock, {});
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
  for (int i = 0; i < 10; ++i) result = judged(1.0, 0.95, 0.2, result.clock);
  EXPECT_EQ(result.clock.cooldown, 3600s) << "at most an hour";
  result = judged(1.0, 0.9, 0.2, result.clock);
  EXPECT_EQ(result.verdict, Verdict::kKeep);
  EXPECT_EQ(result.clock.cooldown, 1800s) << "halved after a hit";
}

TEST(Outcome, TellsTheErrorOfTheGain) {
  const Judged result =
      judge({.before_seconds = 1.5, .after_seconds = 1.2, .error = 0.01, .predicted_gain = 0.22},
            "k=2", 500, Rules{}, {}, {});
  EXPECT_NEAR(result.gain_error, 0.0125, 1e-9);
}

TEST(Outcome, WithoutMeasurementNothingIsJudged) {
  EXPECT_EQ(judged(0, 1.5, 0.2).verdict, Verdict::kKeep);
  EXPECT_EQ(judged(1, 0, 0.2).measured_gain, 0);
}

TEST(Outcome, IsOneSentence) {
  Measured measured{.before_seconds = 1.51,
                    .after_seconds = 1.192,
                    .error = 0.009,
                    .before_steps = 6,
                    .after_steps = 14,
                    .predicted_gain = 0.248,
                    .predicted_now = 0.261};
  const Judged result = judge(measured, "k=2", 500, Rules{}, {}, {});
  EXPECT_EQ(outcome_text(2, "", measured, result),
            "revision 2: measured +26.7 % (+-1.1) over 14 steps against 6 on the same network; "
            "predicted for this network +26.1 %, when decided +24.8 %; step 1.51 s -> 1.19 s");
  EXPECT_EQ(missed_text(measured, result), "measured gain 26.7 % (+-1.1), predicted 26.1 %");
  measured.interval_now = Interval{0.212, 0.313};
  EXPECT_EQ(outcome_text(2, "", measured, result),
            "revision 2: measured +26.7 % (+-1.1) over 14 steps against 6 on the same network; "
            "predicted for this network +26.1 % (80 %: +21..+31), when decided +24.8 %; step "
            "1.51 s -> 1.19 s");
  measured.interval_now.reset();
  measured.interval_now = Interval{0.212, 0.313};
  EXPECT_EQ(outcome_text(2, "", measured, result),
            "revision 2: measured +26.7 % (+-1.1) over 14 steps against 6 on the same network; "
            "predicted for this network +26.1 % (80 %: +21..+31), when decided +24.8 %; step "
            "1.51 s -> 1.19 s");
  measured.interval_now.reset();
  measured.restated = true;
  EXPECT_EQ(outcome_text(7, "4->3 stages", measured, result),
            "revision 7 (4->3 stages): measured +26.7 % (+-1.1) over 14 steps against the plan "
            "before as simulated on this network; predicted for this network +26.1 %, when decided "
            "+24.8 %; step 1.51 s -> 1.19 s");
  measured.restated = false;
  measured.predicted_now.reset();
  EXPECT_EQ(outcome_text(7, "", measured, result),
            "revision 7: measured +26.7 % (+-1.1) over 14 steps against 6 before; "
            "predicted +24.8 %; step 1.51 s -> 1.19 s");
}

}  // namespace outcome_test
}  // namespace weir::gate
