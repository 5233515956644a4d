// SPDX-License-Identifier: Apache-2.0
// The tuner of jobs with replicas.
#include <algorithm>

#include <gmock/gmock.h>

#include "tests/operator/adaptation/retune/tuned_demo.h"
#include "worker/base/units.h"
#include "worker/schedule/validate.h"

namespace weir::retune {
namespace tune_replicas_test {

using namespace test;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Tuner, ReplicasWaitForTheSlowest) {
  Input input = quiet_demo();
  for (int b = 0; b < 3; ++b)
    for (const Direction direction : {Direction::kForward, Direction::kBackward})
      input.rates.rates[{1, b, direction}].assign(16, kBytes / (b == 1 ? 0.024 : 0.0004));
  EXPECT_NEAR(evaluate(input).decision.current_seconds,
              evaluate(preempted_demo()).decision.current_seconds, 1e-9);
  EXPECT_THAT(evaluate(input).decision.reason, HasSubstr("link 1-2 forward of replica 1"));
}

// Two replicas with these shares; the second computes `slower` times as long.
Input two_replicas(int first, int second, double slower) {
  Input input = quiet_demo();
  for (const auto& [link, rates] : quiet_demo().rates.rates)
    input.rates.rates[{1, link.boundary, link.direction}] = rates;
  std::vector<schedule::StageTime> slow = input.stages;
  for (auto& stage : slow) {
    stage.forward = from_seconds(slower * to_seconds(stage.forward));
    stage.backward = from_seconds(slower * to_seconds(stage.backward));
  }
  input.replicas = {{first, input.stages}, {second, slow}};
  input.stages = slowest_stages(input.replicas);
  input.micro_batches = std::min(first, second);
  return input;
}

TEST(TunerReplicas, AStepEndsWithTheSlowestReplicaAndItsSync) {
  const double one = tune(quiet_demo(), {}).decision.current_seconds;
  const double equal = tune(two_replicas(16, 16, 1), {}).decision.current_seconds;
  const double slow = tune(two_replicas(16, 16, 2), {}).decision.current_seconds;
  const double shared = tune(two_replicas(21, 11, 2), {}).decision.current_seconds;
  Input tail = two_replicas(16, 16, 1);
  tail.sync_seconds = 0.25;

  EXPECT_NEAR(equal, one, 1e-9);
  EXPECT_NEAR(slow / one, 2, 0.01);
  EXPECT_LT(shared, 0.8 * slow);
  EXPECT_NEAR(tune(tail, {}).decision.current_seconds, one + 0.25, 1e-9);
}

// One at twice the time: together 1.5 times the samples of the slow one's step (sync.mode Partial).
TEST(TunerReplicas, ReplicasThatDoNotWaitForEachOtherGoEachAtItsOwnPace) {
  const double one = tune(quiet_demo(), {}).decision.current_seconds;
  Input input = two_replicas(16, 16, 2);
  const Tuned together = tune(input, {});
  pass_time(input);
  input.apart = true;

  const double apart = tune(input, together.state).decision.current_seconds;

  EXPECT_NEAR(together.decision.current_seconds / one, 2, 0.01);
  EXPECT_NEAR(apart / one, 2 / 1.5, 0.01);
  input.sync_seconds = 0.25;
  EXPECT_NEAR(tune(input, {}).decision.current_seconds, apart + 0.25, 1e-9);
}

TEST(TunerReplicas, ALinkOfOneReplicaRaisesKOfAll) {
  Input input = two_replicas(16, 16, 1);
  for (const Direction direction : {Direction::kForward, Direction::kBackward})
    input.rates.rates[{1, 1, direction}].assign(input.rates.times.size(), kBytes / 0.024);

  const Tuned tuned = evaluate(input, 2);

  ASSERT_TRUE(tuned.decision.change.has_value()) << tuned.decision.reason;
  EXPECT_GT(tuned.decision.change->schedule.k, 1);
  EXPECT_THAT(tuned.decision.reason, HasSubstr("of replica 1"));
}

TEST(TunerReplicas, NoCapIsAboveTheSmallestShare) {
  Input input = two_replicas(26, 6, 1);
  for (int b = 0; b < 3; ++b) set_transfer(input, b, 0.024);

  const Tuned tuned = evaluate(input, 2);

  for (const Costed& candidate : tuned.decision.candidates) {
    EXPECT_THAT(schedule::broken_rules(candidate.schedule, 4, 6), IsEmpty()) << candidate.text;
  }
  EXPECT_FALSE(tuned.decision.candidates.empty()) << tuned.decision.reason;
}

TEST(TunerReplicas, OtherSharesAreCostedAgain) {
  Input input = two_replicas(16, 16, 2);
  const Tuned before = tune(input, {});
  pass_time(input);
  input.replicas[0].micro_batches = 21;
  input.replicas[1].micro_batches = 11;
  input.micro_batches = 11;

  const Tuned after = tune(input, before.state);

  EXPECT_LT(after.decision.current_seconds, 0.8 * before.decision.current_seconds);
}

}  // namespace tune_replicas_test
}  // namespace weir::retune
