// SPDX-License-Identifier: Apache-2.0
// The layers of a pipeline move between live processes in the middle of training: no process is
// started again, no checkpoint is read, no bit of the loss changes. Whoever dies meanwhile leaves
// nobody waiting: training goes on from the last checkpoint, or from step 0.
#include <algorithm>
#include <map>
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

constexpr int kMicroBatches = 4;

std::vector<std::string> common() {
  return {"--model=mlp", "--seq=8", "--vocab=32", "--steps=" + std::to_string(kNoEnd)};
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
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();

  std::map<std::int64_t, std::string> by_step;
  for (int worker = 0; worker < workers.count(); ++worker) {
    for (const LoggedStep& step : workers.steps(worker)) {
      if (step.loss_hex.empty()) continue;
      EXPECT_TRUE(by_step.emplace(step.step, step.loss_hex).second)
          << "step " << step.step << " was done twice";
    }
    EXPECT_THAT(workers[worker].errors(), Not(HasSubstr("checkpoint")));
  }
  std::vector<std::string> losses;
  for (const auto& [step, loss] : by_step) {
    ASSERT_EQ(step, static_cast<std::int64_t>(losses.size())) << "was not done";
    losses.push_back(loss);
  }
  EXPECT_EQ(losses, losses_alone(common(), kMicroBatches, losses.size()));
}

// Worker 1 holds layers that the others need; worker 0 coordinates.
TEST(Move, DuringWhichAWorkerDiesGoesOnFromTheCheckpoint) {
  constexpr int kAfter = 20;  // steps after the restart
  for (const int victim : {1, 0}) {
    for (const std::string moment : {"plan received", "COMMIT of plan 2", "state moved"}) {
      const TempDir checkpoints;
      auto arguments = common();
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

      ASSERT_TRUE(workers.adopts(1, 3)) << victim << moment << workers[0].errors();
      const auto before = static_cast<std::int64_t>(workers.steps(1).size());
      ASSERT_TRUE(workers.reaches(1, before + kAfter)) << victim << moment << workers[0].errors();
      EXPECT_THAT(workers.end(), Each(kTerminated)) << victim << moment << workers[0].errors();
      const auto steps = workers.steps(1);
      ASSERT_FALSE(steps.empty());
      EXPECT_EQ(steps.back().epoch, 3U);
      const auto last = std::ranges::max(steps, {}, &LoggedStep::step).step;
      const auto expected =
          losses_alone(common(), kMicroBatches, static_cast<std::size_t>(last) + 1);
      ASSERT_FALSE(expected.empty());
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
  ASSERT_TRUE(workers.adopts(2, 3)) << workers[0].errors();
  EXPECT_THAT(workers.end(), testing::ElementsAre(kTerminated, 128 + SIGKILL, kTerminated));
  const auto done = losses(workers.steps(2));
  EXPECT_EQ(done, losses_alone(common(), kMicroBatches, done.size()));
}

}  // namespace move_test
}  // namespace weir::test
