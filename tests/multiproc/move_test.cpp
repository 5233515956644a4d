// SPDX-License-Identifier: Apache-2.0
// The layers of a pipeline move between live processes in the middle of training: no process is
// started again, no checkpoint is read, no bit of the loss changes. Whoever dies meanwhile leaves
// nobody waiting: training goes on from the last checkpoint, or from step 0.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace move_test {

using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr int kMicroBatches = 4, kSteps = 2000;

std::vector<std::string> common(int steps = kSteps) {
  return {"--model=mlp", "--seq=8", "--vocab=32", "--steps=" + std::to_string(steps)};
}

PlanText plan_on(int revision, std::vector<int> on, std::vector<std::pair<int, int>> ranges) {
  PlanText plan{.trigger = revision == 1 ? "Initial" : "Regroup",
                .state = revision == 1 ? "Keep" : "Move",
                .revision = revision,
                .stages = static_cast<int>(on.size()),
                .micro_batches = kMicroBatches};
  plan.on = std::move(on);
  plan.ranges = std::move(ranges);
  return plan;
}

std::string last_switch(const std::string& log) {
  const auto at = log.rfind("\"msg\":\"plan switch\"");
  return at == std::string::npos ? "" : log.substr(at, log.find('\n', at) - at);
}

TEST(Move, ThroughFiveCutsAndRankMapsKeepsEveryBitOfTheLoss) {
  const std::vector<PlanText> plans = {
      plan_on(1, {0, 1, 2}, {{0, 1}, {2, 4}, {5, 7}}),
      plan_on(2, {0, 1, 2}, {{0, 3}, {4, 5}, {6, 7}}),  // another cut
      plan_on(3, {2, 0, 1}, {{0, 3}, {4, 5}, {6, 7}}),  // ranks change places
      plan_on(4, {2, 1}, {{0, 4}, {5, 7}}),             // fewer stages: worker 0 is idle
      plan_on(5, {1, 3, 0, 2}, {{0, 1}, {2, 2}, {3, 5}, {6, 7}})};  // more: idle ones join
  Workers workers(plans[0], common(), {}, 4);
  ASSERT_TRUE(workers.reaches(2, 3)) << workers[0].errors();
  for (std::size_t i = 1; i < plans.size(); ++i) {
    workers.write_plan(plans[i]);
    const auto revision = static_cast<std::uint32_t>(plans[i].revision);
    ASSERT_TRUE(workers.adopts(plans[i].on.back(), revision)) << workers[0].errors();
    // The ranks may have done steps before the coordinator hears that all have changed.
    ASSERT_TRUE(workers[0].says("\"plan switch\",\"revision\":" + std::to_string(revision) + ","))
        << workers[0].errors();
    EXPECT_THAT(last_switch(workers[0].errors()), HasSubstr("Applied"));
    EXPECT_THAT(last_switch(workers[0].errors()), Not(HasSubstr("\"moved_bytes\":0,")));
  }
  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  std::vector<std::string> losses(kSteps);
  for (int worker = 0; worker < workers.count(); ++worker) {
    for (const LoggedStep& step : workers.steps(worker)) {
      std::string& at = losses[static_cast<std::size_t>(step.step)];
      if (step.loss_hex.empty()) continue;
      EXPECT_EQ(at, "") << "step " << step.step << " was done twice";
      at = step.loss_hex;
    }
    EXPECT_THAT(workers[worker].errors(), Not(HasSubstr("checkpoint")));
  }
  EXPECT_EQ(losses, losses_alone(common(), kMicroBatches));
}

// Worker 1 holds layers that the others need; worker 0 coordinates.
TEST(Move, DuringWhichAWorkerDiesGoesOnFromTheCheckpoint) {
  const auto expected = losses_alone(common(1500), kMicroBatches);
  for (const int victim : {1, 0}) {
    for (const std::string moment : {"plan received", "COMMIT of plan 2", "state moved"}) {
      const TempDir checkpoints;
      auto arguments = common(1500);
      arguments.push_back("--checkpoint-dir=" + checkpoints.path().string());
      arguments.push_back("--checkpoint-interval=100");
      Workers workers(plan_on(1, {0, 1}, {{0, 3}, {4, 7}}), arguments, {}, 3);
      ASSERT_TRUE(workers.reaches(1, 250)) << workers[0].errors();
      workers.write_plan(plan_on(2, {2, 0, 1}, {{0, 1}, {2, 5}, {6, 7}}));
      ASSERT_TRUE(workers[0].says(moment)) << workers[0].errors();
      workers[victim].signal(SIGKILL);
      ASSERT_EQ(workers[victim].wait(), 128 + SIGKILL);

      auto restart = plan_on(3, {2, 0, 1}, {{0, 1}, {2, 5}, {6, 7}});
      restart.trigger = "Restart";
      restart.state = "Checkpoint";
      workers.write_plan(restart);
      workers.restart(victim);

      EXPECT_THAT(workers.wait_all(), Each(0)) << victim << moment << workers[0].errors();
      const auto steps = workers.steps(1);
      ASSERT_FALSE(steps.empty());
      EXPECT_EQ(steps.back().step, 1499);
      EXPECT_EQ(steps.back().epoch, 3U);
      for (const LoggedStep& step : steps) {
        if (step.loss_hex.empty()) continue;
        ASSERT_EQ(step.loss_hex, expected[static_cast<std::size_t>(step.step)]) << step.step;
      }
    }
  }
}

TEST(Move, IsRefusedWithAReasonWhenALayerIsNowhereLive) {
  Workers workers(plan_on(1, {0, 1}, {{0, 3}, {4, 7}}), common(), {}, 3);
  ASSERT_TRUE(workers.reaches(1, 3)) << workers[0].errors();
  workers[1].signal(SIGKILL);
  ASSERT_TRUE(workers[0].says("member lost")) << workers[0].errors();
  workers.write_plan(plan_on(2, {0, 2}, {{0, 3}, {4, 7}}));
  ASSERT_TRUE(workers[0].says("state Move: layer 4 is nowhere live: worker-1 is gone"))
      << workers[0].errors();
  auto restart = plan_on(3, {0, 2}, {{0, 3}, {4, 7}});  // what an operator does then
  restart.trigger = "Restart";
  restart.state = "Checkpoint";
  workers.write_plan(restart);
  EXPECT_EQ(workers[0].wait(), 0);
  EXPECT_EQ(workers[2].wait(), 0);
  EXPECT_EQ(losses(workers.steps(2)), losses_alone(common(), kMicroBatches));
}

}  // namespace move_test
}  // namespace weir::test
