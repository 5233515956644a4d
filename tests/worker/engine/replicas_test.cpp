// SPDX-License-Identifier: Apache-2.0
// Data parallel pipelines in one process: the loss is that of one replica with the whole batch, bit
// for bit, whatever the shares, through changes of the shares, and nobody hangs when a rank goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"

namespace weir::engine {
namespace replicas_test {

using schedule::Dispatch;
using schedule::Family;
using test::Group;
using test::losses_of;
using test::plan_of;
using test::reference_losses;
using testing::Each;
using testing::HasSubstr;

schedule::Plan replicated(int stages, int layers, const std::vector<int>& shares,
                          Family family = Family::kKfkb, int k = 1,
                          Dispatch dispatch = Dispatch::kStrict) {
  const int least = *std::min_element(shares.begin(), shares.end());
  schedule::Plan plan = plan_of(stages, layers, least, family, std::min(k, least), dispatch);
  plan.micro_batches = shares;
  return plan;
}

// Of the last stage of a replica.
std::vector<double> losses(Group& group, const schedule::Plan& plan, int replica) {
  return losses_of(group.records((replica + 1) * plan.stage_count() - 1));
}

TEST(Replicas, GiveTheLossOfOneReplicaBitForBitWithAnyShares) {
  constexpr int kSteps = 4;
  for (const std::string model : {"mlp", "gpt-tiny"}) {
    const auto expected = reference_losses(model, 6, kSteps);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
    for (const std::vector<int>& shares :
         {std::vector{3, 3}, std::vector{5, 1}, std::vector{2, 1, 3}, std::vector{1, 2, 2, 1}}) {
      const auto replicas = static_cast<int>(shares.size());
      const int stages = replicas == 2 ? 2 : 1;
      Group group(model, stages * replicas, kSteps);
      const auto plan = replicated(stages, group.layers(), shares);
      ASSERT_EQ(group.start(plan), "");

      EXPECT_THAT(group.finish(), Each(Exit::kFinished));

      for (int r = 0; r < replicas; ++r) {
        EXPECT_EQ(losses(group, plan, r), expected) << model << " replica " << r;
      }
    }
  }
}

TEST(Replicas, GiveTheSameLossWithEveryScheduleAndTheClip) {
  constexpr int kSteps = 3;
  constexpr double kLimit = 1e-4;
  const auto expected = reference_losses("mlp", 8, kSteps, kLimit);
  struct Case {
    Family family;
    int k;
    Dispatch dispatch;
  };
  for (const Case& one :
       {Case{Family::kOneFOneB, 1, Dispatch::kStrict}, Case{Family::kKfkb, 2, Dispatch::kHint},
        Case{Family::kGpipe, 3, Dispatch::kStrict}}) {
    Group group("mlp", 4, kSteps, kLimit);
    const auto plan = replicated(2, group.layers(), {3, 5}, one.family, one.k, one.dispatch);
    ASSERT_EQ(group.start(plan), "");

    EXPECT_THAT(group.finish(), Each(Exit::kFinished));

    EXPECT_EQ(losses(group, plan, 0), expected) << name(one.family);
    EXPECT_EQ(losses(group, plan, 1), expected) << name(one.family);
  }
}

// COMMIT reaches the replicas at different moments; they must still change before the same step.
TEST(Replicas, ChangeTheirSharesBeforeTheSameStepWithoutABitOfDifference) {
  constexpr int kSteps = 150;
  Group group("mlp", 4, kSteps);
  auto plan = replicated(2, group.layers(), {3, 3});
  ASSERT_EQ(group.start(plan), "");
  std::uint32_t revision = 1;
  for (const std::vector<int>& shares : {std::vector{1, 5}, std::vector{4, 2}}) {
    ASSERT_TRUE(group.reaches(0, 10 * revision));
    auto next = replicated(2, group.layers(), shares);
    next.revision = ++revision;
    next.trigger = schedule::Trigger::kRetune;
    ASSERT_EQ(group.switch_to(next), "");
  }

  EXPECT_THAT(group.finish(), Each(Exit::kFinished));

  EXPECT_EQ(losses(group, plan, 0), reference_losses("mlp", 6, kSteps));
  EXPECT_EQ(losses(group, plan, 1), losses(group, plan, 0));
  const auto first = group.records(0);
  EXPECT_EQ(first.back().epoch, 3U);
  EXPECT_EQ(first.back().samples, 4 * 2);
  for (int rank = 1; rank < 4; ++rank) {
    const auto records = group.records(rank);
    ASSERT_EQ(records.size(), first.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      ASSERT_EQ(records[i].epoch, first[i].epoch) << "rank " << rank << " step " << i;
    }
  }
}

TEST(Replicas, DoNotChangeWhileOneOfThemHasNotHeardOfIt) {
  Group group("mlp", 2, 60);
  const auto plan = replicated(1, group.layers(), {2, 2});
  ASSERT_EQ(group.start(plan), "");
  auto next = replicated(1, group.layers(), {1, 3});
  next.revision = 2;
  next.trigger = schedule::Trigger::kRetune;
  ASSERT_EQ(group.prepare(next), "");
  group.engine(0).mailbox().put(protocol::Commit{.revision = 2});

  EXPECT_THAT(group.finish(), Each(Exit::kFinished));

  for (const StepRecord& record : group.records(0)) EXPECT_EQ(record.epoch, 1U);
}

TEST(Replicas, AllLearnOfALossInOneOfThem) {
  Group group("mlp", 4, 1'000'000);
  const auto plan = replicated(2, group.layers(), {2, 2});
  ASSERT_EQ(group.start(plan), "");
  ASSERT_TRUE(group.reaches(0, 3));

  group.break_links(0);  // of the first replica's pipeline

  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(group.reports_loss(rank)) << rank;
  for (int rank = 0; rank < 4; ++rank) group.engine(rank).leave(std::chrono::seconds(1));
  group.finish();
}

TEST(Replicas, CountWhatTheyWaitForEachOther) {
  Group group("mlp", 2, 5);
  ASSERT_EQ(group.start(replicated(1, group.layers(), {1, 40})), "");
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));

  const Statistics fast = group.engine(0).statistics();
  const Statistics slow = group.engine(1).statistics();
  EXPECT_EQ(fast.sync_rounds, 5);
  EXPECT_GT(fast.sync_seconds, slow.sync_seconds);
  EXPECT_GT(fast.sync_bytes_per_second, 0);
  EXPECT_EQ(fast.samples + slow.samples, 5 * 41 * 2);
  double waited = 0;
  for (const StepRecord& record : group.records(0)) waited += record.sync_seconds;
  EXPECT_DOUBLE_EQ(waited, fast.sync_seconds);
}

}  // namespace replicas_test
}  // namespace weir::engine
