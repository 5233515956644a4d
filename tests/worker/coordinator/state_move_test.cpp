// SPDX-License-Identifier: Apache-2.0
// State Move as the coordinator sees it: who holds what, when it is refused, where all stop, what a
// failure in the middle means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {
namespace state_move_test {

using protocol::Outcome;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// Three layers on two stages; the third pod is idle.
schedule::Plan regroup(std::uint32_t revision) {
  auto next = plan(revision, schedule::Trigger::kRegroup, 2);
  next.stages = {{0, 0}, {1, 2}};
  next.ranks[1].pod = "pod-2";
  next.state = schedule::StateMove::kMove;
  return next;
}

TEST(StateMove, TellsEveryRankWhoHoldsWhat) {
  World world;
  world.train();
  world.offer(regroup(2));

  EXPECT_THAT(world.receivers<protocol::Prepare>(), ElementsAre(0, 1, 2));
  const auto told = world.last<protocol::Prepare>().plan;
  ASSERT_THAT(told.holders, SizeIs(3));
  EXPECT_EQ(told.holders[1].pod, "pod-1");
  EXPECT_EQ(told.holders[1].pod_uid, "uid-1");
  EXPECT_EQ(told.holders[1].ip, "10.0.0.1");
  EXPECT_EQ(told.holders[1].data_port, 7072);
  EXPECT_EQ(told.holders[1].layers, (schedule::LayerRange{1, 1}));
}

TEST(StateMove, ReportsPauseAndBytesOfAllRanks) {
  World world;
  world.step_seconds = 0;  // not told: the boundary is two steps ahead
  world.train(5);
  world.offer(regroup(2));
  for (const int index : {0, 2}) world.say(index, protocol::Ready{.revision = 2});
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 7);
  EXPECT_THAT(world.receivers<protocol::Commit>(), ElementsAre(0, 1, 2));
  world.pass(2500ms);
  world.say(2, protocol::Moved{.revision = 2, .bytes = 1000});
  world.say(0, protocol::Moved{.revision = 2, .bytes = 24});
  for (const int index : {0, 2}) {
    world.say(index, protocol::ReadyState{.revision = 2, .step = 7});
  }
  EXPECT_THAT(world.receivers<protocol::Go>(), ElementsAre(0, 1, 2));
  world.say(0, protocol::StageStatus{.epoch = 2, .step = 8, .stage = 0});
  world.say(2, protocol::StageStatus{.epoch = 2, .step = 8, .stage = 1});
  ASSERT_THAT(world.finished, SizeIs(1));
  EXPECT_EQ(world.finished[0].outcome, Outcome::kApplied);
  EXPECT_EQ(world.finished[0].moved_bytes, 1024);
  EXPECT_DOUBLE_EQ(world.finished[0].pause_seconds, 2.5);
}

// A COMMIT that comes after the step has begun costs the state: short steps leave time for it.
TEST(StateMove, StopsLaterWhereStepsAreShort) {
  World world;
  world.train(5);
  for (int index = 0; index < 3; ++index) {
    world.say(index,
              protocol::StageStatus{.epoch = 1, .step = 6, .stage = index, .step_seconds = 0.05});
  }
  world.offer(regroup(2));
  for (const int index : {0, 2}) world.say(index, protocol::Ready{.revision = 2});
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 6 + 2 + 4);
}

TEST(StateMove, IsRefusedWhenALayerIsNowhereLive) {
  World world;
  world.train();
  world.lose(1);
  world.forget();
  world.offer(regroup(2));
  ASSERT_THAT(world.finished, SizeIs(1));
  EXPECT_EQ(world.finished[0].outcome, Outcome::kRefused);
  EXPECT_EQ(world.finished[0].reason, "state Move: layer 1 is nowhere live: pod-1 is gone");
  // A pod of that name with another uid has no state either.
  world.come(1, 0, 0, 0, "uid-new");
  world.forget();
  world.offer(regroup(3));
  EXPECT_THAT(world.finished.back().reason, HasSubstr("layer 1 is nowhere live"));
}

TEST(StateMove, IsRefusedWhileTheGenerationIsBroken) {
  World world;
  world.train();
  world.say(1, protocol::PeerLost{.revision = 1, .reason = "a link ended"});
  world.forget();
  world.offer(regroup(2));
  ASSERT_THAT(world.finished, SizeIs(1));
  EXPECT_EQ(world.finished[0].outcome, Outcome::kRefused);
  EXPECT_THAT(world.finished[0].reason, HasSubstr("is broken"));
}

// Nobody has given up what it held: the new cut is made of that again.
TEST(StateMove, ThatBreaksOffIsMadeAgain) {
  World world;
  world.train(5);
  world.offer(regroup(2));
  for (const int index : {0, 2}) world.say(index, protocol::Ready{.revision = 2});
  world.all_finish_step(1, 7);
  world.say(0, protocol::ReadyState{.revision = 2, .step = 7});
  world.forget();
  world.say(
      2, protocol::ReadyState{.revision = 2, .error = "pod-1 broke off", .step = 7, .holds = true});

  ASSERT_THAT(world.finished, SizeIs(1));
  EXPECT_EQ(world.finished[0].outcome, Outcome::kAborted);
  EXPECT_THAT(world.receivers<protocol::Abort>(), ElementsAre(0, 1, 2));
  world.pass(1500ms);  // the back-off of a rejoin
  const auto again = world.last<protocol::Prepare>();
  EXPECT_EQ(again.plan.revision, 2U);
  EXPECT_EQ(again.incarnation, 1);
  EXPECT_EQ(again.plan.state, schedule::StateMove::kMove);
  ASSERT_THAT(again.plan.holders, SizeIs(3));
  for (const int index : {0, 2}) {
    world.say(index, protocol::Ready{.revision = 2, .incarnation = 1});
  }
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 7);
}

// It has no place in the new plan, but others fetch from it.
TEST(StateMove, BreaksOffWhenAHolderWithoutAPlaceIsGone) {
  for (const bool dies : {true, false}) {
    World world;
    world.train(5);
    world.offer(regroup(2));
    for (const int index : {0, 2}) world.say(index, protocol::Ready{.revision = 2});
    world.forget();
    if (dies) {
      world.lose(1);
    } else {
      world.say(1, protocol::ReadyState{.revision = 2, .error = "COMMIT came late"});
    }
    ASSERT_THAT(world.finished, SizeIs(1)) << dies;
    EXPECT_EQ(world.finished[0].outcome, Outcome::kAborted);
  }
}

// A coordinator that is new to the ranks goes by what they tell.
TEST(StateMove, ToARestartedCoordinatorIsWhatTheRanksHold) {
  World world(0);
  for (int index = 0; index < 3; ++index) world.come(index, 2, 0, 9);
  auto applied = regroup(2);
  world.offer(applied);
  const auto told = world.last<protocol::Prepare>();
  EXPECT_EQ(told.plan.state, schedule::StateMove::kMove);
  EXPECT_THAT(told.plan.holders, SizeIs(3));
  EXPECT_EQ(told.incarnation, 1);
}

}  // namespace state_move_test
}  // namespace weir::coordinator::test
