// SPDX-License-Identifier: Apache-2.0
// A new cut or rank map in the middle of training: layers move between live ranks, no bit of the
// loss changes, who breaks off leaves nobody waiting.
#include "worker/engine/state_move.h"

#include <future>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"
#include "tests/worker/engine/moves.h"

namespace weir::engine::test {
namespace state_move_test {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(StateMove, ToAnotherCutKeepsEveryBitOfTheLoss) {
  const auto moved =
      expect_equal_losses(3, {{0, 1, 2}, {1, 4, 7}}, {{0, 1, 2}, {3, 5, 7}});  // mlp: 8 layers
  EXPECT_GT(moved[0], 0);  // layers 2, 3 from the second
  EXPECT_GT(moved[1], 0);  // layer 5 from the third
  EXPECT_EQ(moved[2], 0);  // a part of what it had
}

TEST(StateMove, TakesFrozenParametersAlong) {
  const Cut before{{0, 1, 2}, {1, 4, 7}}, after{{2, 0, 1}, {1, 4, 7}};
  const auto moved =
      expect_equal_losses(3, before, after, Group::On::kHost, weir::test::kFrozenMlp);
  const stage::Model model = tiny(weir::test::kFrozenMlp);
  std::int64_t bytes = 0;  // values and moments, or values
  for (int i = 2; i <= 4; ++i) {
    const stage::LayerInfo& layer = model.layers[static_cast<std::size_t>(i)];
    bytes += 3 * layer.parameter_bytes + layer.frozen_bytes;
  }
  EXPECT_EQ(moved[0], bytes);
}

TEST(StateMove, SwapsRanks) {
  const auto moved = expect_equal_losses(3, {{0, 1, 2}, {1, 4, 7}}, {{2, 0, 1}, {1, 4, 7}});
  for (const auto bytes : moved) EXPECT_GT(bytes, 0);
}

TEST(StateMove, ToMoreStagesTakesInAnIdleRank) {
  const auto moved = expect_equal_losses(3, {{0, 1}, {3, 7}}, {{0, 1, 2}, {2, 5, 7}});
  EXPECT_EQ(moved[0], 0);
  EXPECT_GT(moved[1], 0);
  EXPECT_GT(moved[2], 0);
}

TEST(StateMove, ToFewerStagesLeavesARankIdle) {
  const auto moved = expect_equal_losses(3, {{0, 1, 2}, {2, 5, 7}}, {{0, 2}, {3, 7}});
  EXPECT_GT(moved[0], 0);
  EXPECT_EQ(moved[1], 0);
  EXPECT_GT(moved[2], 0);
}

TEST(StateMove, OfTheSameCutMovesNothing) {
  EXPECT_THAT(expect_equal_losses(2, {{0, 1}, {3, 7}}, {{0, 1}, {3, 7}}), Each(0));
}

TEST(StateMove, EndsWithAReasonWhenAHolderStandsAtAnotherStep) {
  Group group("mlp", 2, 200000);
  const auto first = plan_on(group, 1, {0, 1}, {3, 7});
  ASSERT_EQ(enter(group, 2, first, 0), "");
  ASSERT_TRUE(group.reaches(0, 5));
  // Its step has begun: the boundary is past.
  EXPECT_THAT(enter(group, 2, moving(plan_on(group, 2, {0, 1}, {4, 7}), first), 1),
              HasSubstr("COMMIT for step 1 came in step"));
  for (int i = 0; i < 2; ++i) group.engine(i).leave({});
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

// The holder never comes to the boundary, and is given up: the one that waits for it ends its wait.
TEST(StateMove, EndsWhenThePlanIsAborted) {
  Saves saves;
  Group group("mlp", 2, 200000, 0, &saves);
  const auto first = plan_on(group, 1, {0}, {7});
  ASSERT_EQ(enter(group, 2, first, 0), "");
  const auto second = moving(plan_on(group, 2, {0, 1}, {4, 7}), first);
  ASSERT_EQ(group.ask_rank(1, protocol::Prepare{second}).get(), "");
  auto answer = group.ask_rank(1, protocol::Commit{2, kMovedAt});
  EXPECT_EQ(answer.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  group.engine(1).mailbox().put(protocol::Abort{2});
  group.engine(1).mailbox().put(protocol::Save{.step = 5});  // is answered when the wait has ended
  eventually([&] { return !saves.notes().empty(); }, kPatience / 2);
  EXPECT_THAT(saves.notes(), ElementsAre("late 5"));
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "not sent";
  for (int i = 0; i < 2; ++i) group.engine(i).leave({});
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

// ---- who takes what from whom ----

schedule::LayerHolder holder(const std::string& pod, int first, int last, int replica = 0) {
  return {.pod = pod, .ip = "10.0.0.1", .replica = replica, .layers = {first, last}};
}

schedule::Plan target(const std::string& pod, int replica, int first, int last) {
  schedule::Plan plan;
  plan.stages = {{first, last}};
  plan.ranks = {{.pod = pod, .replica = replica, .stage = 0}};
  return plan;
}

TEST(PartsOfMove, KeepWhatIsThereAndFetchTheRestInPieces) {
  auto plan = target("b", 0, 1, 8);
  plan.holders = {holder("a", 0, 2), holder("b", 3, 4), holder("c", 5, 9)};
  const auto parts = parts_of_move(plan, {.pod = "b"});
  ASSERT_TRUE(parts);
  EXPECT_THAT(parts->kept, ElementsAre(schedule::LayerRange{3, 4}));
  EXPECT_THAT(parts->fetched, ElementsAre(MovePart{0, {1, 2}}, MovePart{2, {5, 8}}));
}

TEST(PartsOfMove, SpreadReplicasOverTheHolders) {
  for (const int replica : {0, 1, 2}) {
    auto plan = target("new", replica, 0, 3);
    plan.holders = {holder("a", 0, 3, 0), holder("b", 0, 3, 1)};
    const auto parts = parts_of_move(plan, {.pod = "new"});
    ASSERT_TRUE(parts);
    EXPECT_THAT(parts->fetched,
                ElementsAre(MovePart{static_cast<std::size_t>(replica % 2), {0, 3}}));
  }
}

TEST(PartsOfMove, NameALayerThatNobodyHolds) {
  auto plan = target("b", 0, 0, 3);
  plan.holders = {holder("a", 0, 1), holder("c", 3, 3)};
  const auto parts = parts_of_move(plan, {.pod = "b"});
  ASSERT_FALSE(parts);
  EXPECT_EQ(parts.error().message, "state: Move, but layer 2 is held by no rank");
}

}  // namespace state_move_test
}  // namespace weir::engine::test
