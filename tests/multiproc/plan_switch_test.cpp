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

constexpr int kStages = 3, kMicroBatches = 6, kSteps = 2500;

TEST(PlanSwitch, UnderLoadLosesNoStepAndNoBitOfTheLoss) {
  const std::vector<std::string> common = {"--model=mlp", "--seq=8", "--vocab=32",
                                           "--steps=" + std::to_string(kSteps)};
  PlanText plan{.stages = kStages, .micro_batches = kMicroBatches};
  Workers workers(plan, common);
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
    if (!workers.adopts(0, static_cast<std::uint32_t>(next.revision))) break;
  }

  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  const auto first = workers.steps(0);
  ASSERT_EQ(first.size(), static_cast<std::size_t>(kSteps));
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
  EXPECT_GE(epochs.size(), 6U);
  EXPECT_EQ(losses(workers.steps(kStages - 1)), losses_alone(common, kMicroBatches));
}

// The plan that the killed one was part of, or the new one, until the Restart; nothing else, and
// never two in one step.
TEST(PlanSwitch, DuringWhichAWorkerDiesEndsWithOnePlan) {
  const std::vector<std::string> common = {"--model=mlp", "--seq=8", "--vocab=32", "--steps=600"};
  const auto expected = losses_alone(common, kMicroBatches);
  for (const std::string moment : {"plan received", "PREPARE of plan 2", "COMMIT of plan 2"}) {
    PlanText plan{.stages = 2, .micro_batches = kMicroBatches};
    Workers workers(plan, common);
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
    workers.write_plan(next);  // before it is back, so that nothing older is joined again
    workers.restart(1);

    EXPECT_THAT(workers.wait_all(), Each(0)) << moment << workers[0].errors();
    EXPECT_EQ(losses(workers.steps(1)), expected) << moment;
    for (const LoggedStep& step : workers.steps(1)) EXPECT_EQ(step.epoch, 3U) << moment;
    for (const LoggedStep& step : workers.steps(0)) EXPECT_LE(step.epoch, 3U) << moment;
  }
}

TEST(PlanSwitch, IgnoresADocumentThatCannotBeReadAndRefusesAnIllegalOne) {
  const std::vector<std::string> common = {"--model=mlp", "--seq=8", "--vocab=32", "--steps=1000"};
  Workers workers({.stages = 2, .micro_batches = 4}, common);
  ASSERT_TRUE(workers.reaches(0, 2)) << workers[0].errors();

  PlanText illegal{.trigger = "Retune", .revision = 2, .stages = 2, .micro_batches = 4};
  illegal.caps = {1, 2};
  workers.write_plan(illegal);
  ASSERT_TRUE(workers[0].says("\"outcome\":\"Refused\"")) << workers[0].errors();

  EXPECT_THAT(workers.wait_all(), Each(0));
  for (const LoggedStep& step : workers.steps(1)) EXPECT_EQ(step.epoch, 1U);
}

}  // namespace plan_switch_test
}  // namespace weir::test
