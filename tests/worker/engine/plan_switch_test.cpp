// SPDX-License-Identifier: Apache-2.0
// In-band plan changes while training: every rank changes at the same step, no step is lost or
// repeated, the loss stays that of one stage.
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"
#include "worker/base/random.h"

namespace weir::engine::test {
namespace plan_switch_test {

using schedule::Dispatch;
using schedule::Family;
using testing::Each;

constexpr int kMicroBatches = 6;

schedule::Plan random_plan(Random& random, int layers, std::uint32_t revision) {
  const auto families =
      std::vector{Family::kOneFOneB, Family::kKfkb, Family::kKfkb, Family::kGpipe};
  const Family family = families[random.below(families.size())];
  const int k = family == Family::kOneFOneB ? 1 : 1 + static_cast<int>(random.below(4));
  const Dispatch dispatch = random.below(2) == 0 ? Dispatch::kHint : Dispatch::kStrict;
  auto plan = plan_of(3, layers, kMicroBatches, family, k, dispatch);
  if (random.below(2) == 0) {
    schedule::Split split;
    for (const int cap : plan.schedule.caps) {
      split.held.push_back(cap + static_cast<int>(random.below(
                                     static_cast<std::uint64_t>(kMicroBatches - cap + 1))));
      split.postponed.push_back(static_cast<int>(random.below(4)));
    }
    plan.schedule.split = split;
  }
  plan.revision = revision;
  plan.trigger = schedule::Trigger::kRetune;
  return plan;
}

TEST(PlanSwitch, HappensAtTheSameStepOnEveryRankAndLeavesTheLossAlone) {
  constexpr int kSteps = 300;
  constexpr std::uint64_t kSeed = 20260;
  Random random(kSeed);
  Group group("mlp", 3, kSteps);
  ASSERT_EQ(group.start(
                plan_of(3, group.layers(), kMicroBatches, Family::kOneFOneB, 1, Dispatch::kStrict)),
            "");

  std::uint32_t revision = 1;
  while (group.engine(0).statistics().step < kSteps - 20) {
    const auto plan = random_plan(random, group.layers(), ++revision);
    ASSERT_EQ(group.switch_to(plan), "") << "revision " << revision;
  }
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));

  EXPECT_EQ(losses_of(group.records(2)), reference_losses("mlp", kMicroBatches, kSteps));
  std::set<std::uint32_t> epochs;
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (int rank = 0; rank < 3; ++rank) {
      const StepRecord record = group.records(rank).at(step);
      EXPECT_EQ(record.step, static_cast<std::int64_t>(step)) << "rank " << rank;
      EXPECT_EQ(record.epoch, group.records(0)[step].epoch) << "rank " << rank << " step " << step;
      epochs.insert(record.epoch);
    }
  }
  EXPECT_GE(epochs.size(), 5U);
}

TEST(PlanSwitch, ThatOneRankRefusesLeavesTheOldPlan) {
  constexpr int kSteps = 20;
  Group group("mlp", 2, kSteps);
  auto plan = plan_of(2, group.layers(), kMicroBatches, Family::kOneFOneB, 1, Dispatch::kStrict);
  ASSERT_EQ(group.start(plan), "");
  plan.revision = 2;
  plan.trigger = schedule::Trigger::kRetune;
  plan.schedule.caps = {1, 2};

  EXPECT_NE(group.prepare(plan), "");
  for (int s = 0; s < 2; ++s) group.engine(s).mailbox().put(protocol::Abort{2});
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));

  for (const auto& record : group.records(1)) EXPECT_EQ(record.epoch, 1U);
  EXPECT_EQ(losses_of(group.records(1)), reference_losses("mlp", kMicroBatches, kSteps));
}

}  // namespace plan_switch_test
}  // namespace weir::engine::test
