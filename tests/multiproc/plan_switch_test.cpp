// SPDX-License-Identifier: Apache-2.0
// The plan file is rewritten while workers train: families, k and caps change, no step is lost or
// repeated, every rank changes at the same step, the loss stays that of one process.
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace plan_switch_test {

using testing::Each;

constexpr int kStages = 3, kMicroBatches = 6;

std::vector<std::string> common() {
  return {"--model=mlp", "--seq=8", "--vocab=32", "--steps=" + std::to_string(kNoEnd)};
}

TEST(PlanSwitch, UnderLoadLosesNoStepAndNoBitOfTheLoss) {
  PlanText plan{.stages = kStages, .micro_batches = kMicroBatches};
  Workers workers(plan, common());
  const std::vector<PlanText> changes = {
      {.type = "KFKB", .dispatch = "Hint", .k = 2},
      {.type = "GPipe"},
      {.type = "KFKB", .dispatch = "Hint", .k = 2, .caps = {5, 3, 1}},
      {.type = "OneFOneB"},
      {.type = "KFKB", .dispatch = "Strict", .k = 3},
      {.type = "KFKB", .dispatch = "Strict", .k = 2, .caps = {6, 4, 2}},
      {.type = "GPipe", .dispatch = "Hint"},
      {.type = "KFKB", .dispatch = "Hint", .k = 4},
      {.type = "KFKB", .dispatch = "Hint", .k = 1, .caps = {6, 5, 3}},
      {.type = "OneFOneB"}};  // ten
  ASSERT_TRUE(workers.reaches(0, 2)) << workers[0].errors();
  for (PlanText next : changes) {
    next.stages = kStages;
    next.micro_batches = kMicroBatches;
    next.trigger = "Retune";
    next.revision = ++plan.revision;
    workers.write_plan(next);
    ASSERT_TRUE(workers.adopts(0, static_cast<std::uint32_t>(next.revision)))
        << workers[0].errors();
  }

  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();

  const auto first = workers.steps(0);
  std::set<std::uint32_t> epochs;
  for (int worker = 0; worker < kStages; ++worker) {
    const auto steps = workers.steps(worker);
    ASSERT_EQ(steps.size(), first.size()) << "worker " << worker;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      ASSERT_EQ(steps[i].step, static_cast<std::int64_t>(i)) << "worker " << worker;
      ASSERT_EQ(steps[i].epoch, first[i].epoch) << "worker " << worker << " step " << i;
      epochs.insert(steps[i].epoch);
    }
  }
  EXPECT_EQ(epochs.size(), changes.size() + 1);
  EXPECT_EQ(losses(workers.steps(kStages - 1)),
            losses_alone(common(), kMicroBatches, first.size()));
}

// The plan that the killed one was part of, or the new one, until the Restart; nothing else, and
// never two in one step.
TEST(PlanSwitch, DuringWhichAWorkerDiesEndsWithOnePlan) {
  for (const std::string moment : {"plan received", "PREPARE of plan 2", "COMMIT of plan 2"}) {
    PlanText plan{.stages = 2, .micro_batches = kMicroBatches};
    Workers workers(plan, common());
    ASSERT_TRUE(workers.reaches(0, 2)) << workers[0].errors();
    PlanText next{.type = "KFKB", .dispatch = "Hint", .trigger = "Retune", .revision = 2, .k = 2};
    next.micro_batches = kMicroBatches;
    workers.write_plan(next);
    ASSERT_TRUE(workers[0].says(moment)) << workers[0].errors();
    workers[1].signal(SIGKILL);
    ASSERT_EQ(workers[1].wait(), 128 + SIGKILL);

    next.trigger = "Restart";
    next.state = "Checkpoint";
    next.revision = 3;
    workers.write_plan(next);
    // Worker 1 comes back afterwards, else it could join the older plan once more.
    ASSERT_TRUE(workers[0].says(R"("plan received","revision":3)")) << workers[0].errors();
    workers.restart(1);

    ASSERT_TRUE(workers.reaches(1, 20)) << moment << workers[0].errors();
    EXPECT_THAT(workers.end(), Each(kTerminated)) << moment << workers[0].errors();
    const auto done = losses(workers.steps(1));
    EXPECT_EQ(done, losses_alone(common(), kMicroBatches, done.size())) << moment;
    for (const LoggedStep& step : workers.steps(1)) EXPECT_EQ(step.epoch, 3U) << moment;
    for (const LoggedStep& step : workers.steps(0)) EXPECT_LE(step.epoch, 3U) << moment;
  }
}

TEST(PlanSwitch, IgnoresADocumentThatCannotBeReadAndRefusesAnIllegalOne) {
  Workers workers({.stages = 2, .micro_batches = 4}, common());
  ASSERT_TRUE(workers.reaches(0, 2)) << workers[0].errors();

  PlanText illegal{.trigger = "Retune", .revision = 2, .stages = 2, .micro_batches = 4};
  illegal.caps = {1, 2};
  workers.write_plan(illegal);
  ASSERT_TRUE(workers[0].says("\"outcome\":\"Refused\"")) << workers[0].errors();

  const auto before = static_cast<std::int64_t>(workers.steps(1).size());
  EXPECT_TRUE(workers.reaches(1, before + 20)) << workers[0].errors();
  EXPECT_THAT(workers.end(), Each(kTerminated));
  for (const LoggedStep& step : workers.steps(1)) EXPECT_EQ(step.epoch, 1U);
}

}  // namespace plan_switch_test
}  // namespace weir::test
