// SPDX-License-Identifier: Apache-2.0
// Engines over real links in one process: the loss does not depend on the plan, failures end in a
// new plan or an ending, never in a hang.
#include "worker/engine/engine.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"

namespace weir::engine::test {
namespace engine_test {

using schedule::Dispatch;
using schedule::Family;
using testing::Each;

TEST(Engine, GivesTheLossOfOneStageBitForBitWithEverySchedule) {
  constexpr int kMicroBatches = 5, kSteps = 3;
  struct Case {
    Family family;
    int k;
    Dispatch dispatch;
  };
  const std::vector<Case> cases = {{Family::kOneFOneB, 1, Dispatch::kStrict},
                                   {Family::kKfkb, 2, Dispatch::kStrict},
                                   {Family::kKfkb, 2, Dispatch::kHint},
                                   {Family::kKfkb, 3, Dispatch::kHint},
                                   {Family::kGpipe, 5, Dispatch::kStrict}};
  for (const std::string model : {"mlp", "gpt-tiny"}) {
    const auto expected = reference_losses(model, kMicroBatches, kSteps);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
    for (const int stages : {2, 3}) {
      for (const Case& one : cases) {
        Group group(model, stages, kSteps);
        ASSERT_EQ(group.start(plan_of(stages, group.layers(), kMicroBatches, one.family, one.k,
                                      one.dispatch)),
                  "");

        EXPECT_THAT(group.finish(), Each(Exit::kFinished));

        EXPECT_EQ(losses_of(group.records(stages - 1)), expected)
            << model << " " << stages << " stages " << name(one.family) << " k " << one.k;
      }
    }
  }
}

TEST(Engine, ClipsByTheNormOfAllStagesBitForBitWithEveryCut) {
  constexpr int kMicroBatches = 3, kSteps = 4;
  constexpr double kLimit = 1e-4;  // far below the norms, so that every step is clipped
  for (const std::string model : {"mlp", "gpt-tiny"}) {
    const auto expected = reference_losses(model, kMicroBatches, kSteps, kLimit);
    ASSERT_NE(expected, reference_losses(model, kMicroBatches, kSteps)) << "it must matter";
    for (const int stages : {2, 3, 4}) {
      Group group(model, stages, kSteps, kLimit);
      ASSERT_EQ(group.start(plan_of(stages, group.layers(), kMicroBatches, Family::kKfkb, 2,
                                    Dispatch::kHint)),
                "");

      EXPECT_THAT(group.finish(), Each(Exit::kFinished));

      EXPECT_EQ(losses_of(group.records(stages - 1)), expected) << model << " " << stages;
    }
  }
}

TEST(Engine, MeasuresOnItsOwnThreadUntilAPlanComes) {
  Group group("mlp", 2, 100'000);
  EXPECT_EQ(group.ask(1, protocol::Measure{.rounds = 1}), "engine's thread");
  group.engine(0).mailbox().put(protocol::Measure{.rounds = 0});

  const auto plan = plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);
  ASSERT_EQ(group.start(plan), "");
  ASSERT_TRUE(group.reaches(0, 1));
  EXPECT_EQ(group.ask(1, protocol::Measure{.rounds = 1}), "this worker trains");

  group.engine(0).leave(std::chrono::seconds(0));
  group.engine(1).leave(std::chrono::seconds(0));
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

// A new leader of the operator may have no profile, and only idle ranks have time to measure.
TEST(Engine, MeasuresWhileItIsIdleInThePlanOfOthers) {
  Group group("mlp", 2, 100'000);
  auto plan = plan_of(1, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);
  plan.ranks.push_back({.pod = "w0", .ip = "127.0.0.1"});
  ASSERT_EQ(group.ask(2, protocol::Prepare{plan}), "");
  ASSERT_EQ(group.ask(2, protocol::Commit{plan.revision, 0}), "");
  for (const int rank : {0, 1}) group.engine(rank).mailbox().put(protocol::Go{plan.revision});
  ASSERT_TRUE(group.reaches(0, 1));
  EXPECT_EQ(group.ask(std::vector<int>{1}, protocol::Measure{.rounds = 1}), "engine's thread");

  group.engine(0).leave(std::chrono::seconds(0));
  group.engine(1).leave(std::chrono::seconds(0));
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

TEST(Engine, KeepsEachStageWithinItsCap) {
  Group group("mlp", 3, 2);
  const auto plan = plan_of(3, group.layers(), 8, Family::kKfkb, 2, Dispatch::kHint);
  ASSERT_EQ(group.start(plan), "");
  group.finish();

  for (int s = 0; s < 3; ++s) {
    const Statistics statistics = group.engine(s).statistics();
    EXPECT_LE(statistics.in_flight_peak, plan.schedule.caps[static_cast<std::size_t>(s)]);
    EXPECT_GT(statistics.in_flight_peak, 0);
    EXPECT_GT(statistics.activation_bytes_peak, 0);
    EXPECT_EQ(statistics.cap, plan.schedule.caps[static_cast<std::size_t>(s)]);
  }
}

TEST(Engine, CountsSamplesTokensAndOps) {
  Group group("mlp", 2, 3);
  ASSERT_EQ(group.start(plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict)),
            "");
  group.finish();

  const Statistics first = group.engine(0).statistics();
  EXPECT_EQ(first.samples, 3 * 4 * 2);
  EXPECT_EQ(first.tokens, 3 * 4 * 2 * 8);
  EXPECT_EQ(first.step, 3);
  std::uint64_t forwards = 0, updates = 0;
  for (const auto count : first.forward.counts) forwards += count;
  for (const auto count : first.optimizer.counts) updates += count;
  EXPECT_EQ(forwards, 12U);
  EXPECT_EQ(updates, 3U);
  EXPECT_EQ(group.engine(1).statistics().samples, 0);
}

TEST(Engine, LeavesBetweenTwoSteps) {
  Group group("mlp", 2, 1'000'000);
  ASSERT_EQ(group.start(plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict)),
            "");
  ASSERT_TRUE(group.reaches(0, 3));

  group.engine(1).leave(kPatience);
  group.engine(0).mailbox().put(
      protocol::PeerLost{.reason = "stage 1 has left"});  // as the coordinator would
  group.engine(0).leave(kPatience);

  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
  EXPECT_GE(group.records(1).size(), 3U);
}

TEST(Engine, RanksThatAreAskedToLeaveTogetherStandAtTheSameStep) {
  constexpr int kStages = 3;
  Group group("mlp", kStages, 1'000'000);
  ASSERT_EQ(
      group.start(plan_of(kStages, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict)),
      "");
  ASSERT_TRUE(group.reaches(0, 3));

  for (int s = kStages; s-- > 0;) group.engine(s).leave(kPatience);

  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
  EXPECT_EQ(group.records(0).size(), group.records(1).size());
  EXPECT_EQ(group.records(0).size(), group.records(2).size());
}

TEST(Engine, ReportsAPeerWhoseLinksBreakAndWaitsForANewPlan) {
  constexpr int kSteps = 50;
  Group group("mlp", 2, kSteps);
  auto plan = plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);
  ASSERT_EQ(group.start(plan), "");
  ASSERT_TRUE(group.reaches(0, 3));

  group.break_links(1);
  ASSERT_TRUE(group.reports_loss(0));
  plan.revision = 2;
  plan.trigger = schedule::Trigger::kRestart;
  plan.state = schedule::StateMove::kCheckpoint;
  ASSERT_EQ(group.start(plan), "");

  EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  EXPECT_EQ(group.records(1).back().step, kSteps - 1);
  EXPECT_EQ(group.records(1).back().loss, reference_losses("mlp", 4, kSteps).back());
}

TEST(Engine, StartsAgainAtStepZeroWhenAPlanSaysCheckpoint) {
  constexpr int kSteps = 40;
  Group group("mlp", 2, kSteps);
  auto plan = plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);
  ASSERT_EQ(group.start(plan), "");
  ASSERT_TRUE(group.reaches(1, 3));

  plan.revision = 2;
  plan.trigger = schedule::Trigger::kRestart;
  plan.state = schedule::StateMove::kCheckpoint;
  ASSERT_EQ(group.start(plan), "");
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));

  const auto records = group.records(1);
  std::vector<StepRecord> second;
  for (const auto& record : records) {
    if (record.epoch == 2) second.push_back(record);
  }
  EXPECT_EQ(second.front().step, 0);
  EXPECT_EQ(losses_of(second), reference_losses("mlp", 4, kSteps));
  EXPECT_EQ(group.engine(1).statistics().rejoins, 1);
}

TEST(Engine, KeepsItsStateInANewGenerationAtTheAgreedStep) {
  constexpr int kSteps = 30;
  Group group("mlp", 2, kSteps);
  auto plan = plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);
  plan.prepare_timeout_seconds = 10;
  ASSERT_EQ(group.start(plan), "");

  // The same cut on new links: all ranks finish the step before and go on from there. The step is
  // chosen ahead of both ranks; a COMMIT that comes too late is refused.
  plan.revision = 2;
  plan.trigger = schedule::Trigger::kRegroup;
  const std::int64_t at_step = kSteps - 2;
  ASSERT_EQ(group.start(plan, at_step), "");
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));

  EXPECT_EQ(losses_of(group.records(1)), reference_losses("mlp", 4, kSteps));
  EXPECT_EQ(group.records(1).back().epoch, 2U);
  EXPECT_EQ(group.records(1)[static_cast<std::size_t>(at_step)].epoch, 2U);
  EXPECT_EQ(group.records(1)[static_cast<std::size_t>(at_step) - 1].epoch, 1U);
}

TEST(Engine, RefusesToKeepAStateThatItDoesNotHave) {
  Group group("mlp", 2, 10);
  auto plan = plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);

  const std::string reason = group.start(plan, 5);

  EXPECT_NE(reason.find("state Keep"), std::string::npos) << reason;
  for (int s = 0; s < 2; ++s) group.engine(s).leave(kPatience);
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

}  // namespace engine_test
}  // namespace weir::engine::test
