// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/step_totals.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::coordinator {
namespace step_totals_test {

using protocol::StageStatus;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

schedule::Plan plan_of(std::uint32_t revision, int k, int replicas = 2) {
  schedule::Plan plan;
  plan.revision = revision;
  plan.trigger = revision == 1 ? schedule::Trigger::kInitial : schedule::Trigger::kRetune;
  plan.schedule.k = k;
  plan.micro_batches.assign(static_cast<std::size_t>(replicas), 4);
  plan.stages = {{0, 1}, {2, 3}};
  return plan;
}

StageStatus status(std::int64_t step, int replica, int stage, std::uint32_t epoch = 1) {
  return {.epoch = epoch,
          .step = step,
          .replica = replica,
          .stage = stage,
          .loss = stage == 1 ? 2.0 + replica : kUnknown,
          .step_seconds = 0.5 + 0.1 * replica,
          .samples = stage == 0 ? 16 : 0};
}

std::vector<StepTotal> all_of(StepTotals& totals, std::int64_t step, std::uint32_t epoch = 1,
                              int replicas = 2) {
  std::vector<StepTotal> done;
  for (int replica = 0; replica < replicas; ++replica) {
    for (int stage = 0; stage < 2; ++stage) {
      for (const auto& one : totals.on_status(status(step, replica, stage, epoch)))
        done.push_back(one);
    }
  }
  return done;
}

TEST(StepTotals, TellsAStepWhenAllReplicasHaveDoneIt) {
  StepTotals totals;
  const auto plan = plan_of(1, 2);
  totals.follow(&plan, 0, {});

  EXPECT_TRUE(totals.on_status(status(1, 0, 0)).empty());
  EXPECT_TRUE(totals.on_status(status(1, 0, 1)).empty());
  EXPECT_TRUE(totals.on_status(status(1, 1, 1)).empty());
  const auto done = totals.on_status(status(1, 1, 0));

  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].step, 1);
  EXPECT_DOUBLE_EQ(done[0].loss, 2.5);
  EXPECT_DOUBLE_EQ(done[0].seconds, 0.6);
  EXPECT_EQ(done[0].samples, 32);
  EXPECT_EQ(done[0].k, 2);
  EXPECT_EQ(done[0].revision, 1U);
}

TEST(StepTotals, KeepsTheOrderAndGivesUpWaitingForOneReplica) {
  StepTotals totals;
  const auto plan = plan_of(1, 1);
  totals.follow(&plan, 0, {});
  totals.on_status(status(1, 0, 0));
  totals.on_status(status(1, 0, 1));

  std::vector<std::int64_t> told;
  for (std::int64_t step = 2; step <= 9; ++step) {
    for (const auto& one : all_of(totals, step)) told.push_back(one.step);
  }

  EXPECT_THAT(told, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_TRUE(totals.on_status(status(1, 1, 0)).empty());  // too late
}

TEST(StepTotals, DoesNotWaitForLostReplicas) {
  StepTotals totals;
  const auto plan = plan_of(1, 1);
  totals.follow(&plan, 0, {1});

  EXPECT_EQ(all_of(totals, 1, 1, 1).size(), 1U);
}

TEST(StepTotals, ANewGenerationMayGoBackARetuneMayNot) {
  StepTotals totals;
  const auto first = plan_of(1, 1), retuned = plan_of(2, 4);
  totals.follow(&first, 0, {});
  EXPECT_EQ(all_of(totals, 5).size(), 1U);
  totals.follow(&retuned, 0, {});
  EXPECT_TRUE(all_of(totals, 5).empty());
  const auto last_of_old = all_of(totals, 6, 1), first_of_new = all_of(totals, 7, 2);
  ASSERT_EQ(last_of_old.size(), 1U);
  ASSERT_EQ(first_of_new.size(), 1U);
  EXPECT_EQ(last_of_old[0].k, 1);
  EXPECT_EQ(first_of_new[0].k, 4);

  totals.follow(nullptr, 0, {});
  totals.follow(&retuned, 1, {});  // a rejoin

  EXPECT_EQ(all_of(totals, 3, 2).size(), 1U);
}

}  // namespace step_totals_test
}  // namespace weir::coordinator
