// SPDX-License-Identifier: Apache-2.0
// What a rank holds outlives the generations that do not begin.
#include "worker/engine/holding.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/fakes.h"
#include "tests/worker/engine/group.h"
#include "tests/worker/engine/moves.h"

namespace weir::engine::test {
namespace holding_test {

using testing::Each;

struct Stages {
  std::unique_ptr<device::Device> device = device::make_host_device();
  std::unique_ptr<stage::Stage> make() {
    return std::make_unique<FakeStage>(*device, std::make_shared<Journal>(), true, true);
  }
};

TEST(Holdings, GiveUpWhatTheyHeldAtTheGoAlone) {
  Stages stages;
  Holdings holdings;
  EXPECT_EQ(holdings.in_use(), nullptr);
  EXPECT_FALSE(holdings.holds({0, 0})) << "layer 0 is not nothing";
  holdings.replace({stages.make(), {0, 3}});
  const stage::Stage* const before = holdings.held();

  holdings.add({stages.make(), {2, 5}});
  EXPECT_NE(holdings.in_use(), before);
  EXPECT_EQ(holdings.held(), before) << "others fetch from it";
  holdings.forget_next();
  EXPECT_EQ(holdings.in_use(), before);
  EXPECT_TRUE(holdings.holds({0, 3}));

  holdings.add({stages.make(), {2, 5}});
  holdings.settle(true, 1);
  EXPECT_TRUE(holdings.holds({2, 5}));
  EXPECT_EQ(holdings.in_use(), holdings.held());
  holdings.settle(true, 1);
  EXPECT_TRUE(holdings.holds({2, 5})) << "the generation goes on with what the rank holds";
  holdings.settle(false, 1);
  EXPECT_EQ(holdings.held(), nullptr);
}

// The same cut again: after it the ranks stand where the aborted one should have begun.
schedule::Plan again(schedule::Plan plan, std::uint32_t revision) {
  plan.revision = revision;
  plan.trigger = schedule::Trigger::kRegroup;
  plan.state = schedule::StateMove::kKeep;
  plan.holders.clear();
  return plan;
}

void expect_no_bit_lost(Group& group) {
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  EXPECT_EQ(losses_of(group.records(1)), reference_losses("mlp", kMovedMicroBatches, kMovedSteps));
}

TEST(Holding, OutlivesAGenerationThatIsAbortedWhileItConnects) {
  Group group("mlp", 2, kMovedSteps);
  const auto first = plan_on(group, 1, {0, 1}, {3, 7});
  ASSERT_EQ(enter(group, 2, first, 0), "");
  const auto second = again(first, 2);
  ASSERT_EQ(group.ask(2, protocol::Prepare{second}), "");
  auto answer = group.ask_rank(0, protocol::Commit{2, kMovedAt});
  ASSERT_TRUE(group.reaches(0, kMovedAt));
  EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout)
      << "it waits for the other one";
  for (int i = 0; i < 2; ++i) group.engine(i).mailbox().put(protocol::Abort{2});

  ASSERT_EQ(enter(group, 2, again(first, 3), kMovedAt), "");
  expect_no_bit_lost(group);
}

TEST(Holding, OutlivesAMoveWithoutAGo) {
  Group group("mlp", 2, kMovedSteps);
  const auto first = plan_on(group, 1, {0, 1}, {3, 7});
  ASSERT_EQ(enter(group, 2, first, 0), "");
  const auto second = moving(plan_on(group, 2, {0, 1}, {5, 7}), first);
  ASSERT_EQ(group.ask(2, protocol::Prepare{second}), "");
  ASSERT_EQ(group.ask(2, protocol::Commit{2, kMovedAt}), "");  // READY_STATE of both
  for (int i = 0; i < 2; ++i) group.engine(i).mailbox().put(protocol::Abort{2});

  ASSERT_EQ(enter(group, 2, again(first, 3), kMovedAt), "");
  expect_no_bit_lost(group);
}

// Stage 0 has heard all notes and updated; its verdict does not arrive.
TEST(Holding, WithCompleteGradientsMakesTheUpdateThatOthersHaveMade) {
  for (const int replicas : {1, 2}) {
    constexpr std::int64_t kSteps = 20;
    Group group("mlp", 2 * replicas, kSteps);
    auto plan = plan_of(2, group.layers(), 2 * replicas, schedule::Family::kOneFOneB, 1,
                        schedule::Dispatch::kStrict);
    plan.micro_batches.assign(static_cast<std::size_t>(replicas), 2);
    ASSERT_EQ(group.prepare(plan), "");
    ASSERT_EQ(group.ask(2 * replicas, protocol::Commit{.revision = 1, .history = 5}), "");
    EXPECT_EQ(group.inventory(0).held.at(0).pending, 5) << "until the GO";
    for (int i = 0; i < 2 * replicas; ++i) group.engine(i).mailbox().put(protocol::Go{1});
    ASSERT_TRUE(group.reaches(0, 3));
    EXPECT_TRUE(group.inventory(0).running);
    group.lose_verdict(0);
    for (int i = 0; i < 2 * replicas; ++i) ASSERT_TRUE(group.reports_loss(i)) << i;
    const StepRecord updated = group.records(0).back();
    const protocol::Inventory ahead = group.inventory(0), behind = group.inventory(1);
    ASSERT_EQ(ahead.held.size(), 1U);
    ASSERT_EQ(behind.held.size(), 1U);
    EXPECT_EQ(ahead.held[0].step, updated.next_step);
    EXPECT_EQ(ahead.verdict->squares, updated.verdict.squares);
    EXPECT_EQ(behind.held[0].step, updated.step);
    EXPECT_TRUE(behind.held[0].summed);
    EXPECT_EQ(behind.held[0].history, 5);
    EXPECT_FALSE(behind.running);
    ASSERT_EQ(group.records(1).back().step + 1, updated.step) << "the verdict was its last need";

    plan.revision = 2;
    plan.trigger = schedule::Trigger::kRestart;
    ASSERT_EQ(group.prepare(plan), "");
    ASSERT_EQ(group.ask(2 * replicas, protocol::Commit{.revision = 2,
                                                       .at_step = updated.next_step,
                                                       .verdict = updated.verdict}),
              "");
    for (int i = 0; i < 2 * replicas; ++i) group.engine(i).mailbox().put(protocol::Go{2});
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));

    for (int r = 0; r < replicas; ++r) {
      EXPECT_EQ(losses_of(group.records(2 * r + 1)), reference_losses("mlp", 2 * replicas, kSteps));
    }
  }
}

}  // namespace holding_test
}  // namespace weir::engine::test
