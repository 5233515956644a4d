// SPDX-License-Identifier: Apache-2.0
// The switch of worker/coordinator/README.md "Plan switch". Faults: plan_outcome_test.cpp.
#include "worker/coordinator/plan_switch.h"

#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {
namespace plan_switch_test {

using protocol::Outcome;
using schedule::Trigger;

TEST(PlanSwitch, LeadsTheFirstPlanThroughReadyStateAndGo) {
  World world;

  world.offer(plan(1, Trigger::kInitial));
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 0);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.ranks[1].ip, "10.0.0.1");
  EXPECT_EQ(world.last<protocol::Prepare>().plan.ranks[1].data_port, 7072);

  world.all_ready(1);
  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 0);

  world.pass(3s);
  world.say(0, protocol::ReadyState{.revision = 1});
  world.say(1, protocol::ReadyState{.revision = 1});
  EXPECT_EQ(world.receivers<protocol::Go>(), Ranks{});
  world.say(2, protocol::ReadyState{.revision = 1});
  EXPECT_EQ(world.receivers<protocol::Go>(), (Ranks{0, 1, 2}));

  world.finish_step(0, 1, 1);
  world.finish_step(1, 1, 1);
  EXPECT_TRUE(world.finished.empty());
  EXPECT_EQ(world.switcher.plan(), nullptr);
  world.finish_step(2, 1, 1);
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].revision, 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kApplied);
  EXPECT_EQ(world.finished[0].step, 0);
  EXPECT_DOUBLE_EQ(world.finished[0].pause_seconds, 3);
  EXPECT_EQ(world.switcher.plan()->revision, 1U);
}

TEST(PlanSwitch, CommitsARetuneToStageZeroOnlyAndAtOnce) {
  World world;
  world.train();
  auto retuned = plan(2, Trigger::kRetune);
  retuned.schedule.k = 2;
  retuned.schedule.dispatch = schedule::Dispatch::kHint;
  retuned.schedule.caps = {6, 4, 2};

  world.offer(retuned);
  world.all_ready(2);

  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.receivers<protocol::Commit>(), Ranks{0});
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 0);
  EXPECT_EQ(world.switcher.plan()->revision, 1U) << "until all ranks say so";

  world.finish_step(2, 1, 6);  // a step of the old plan tells nothing
  world.all_finish_step(2, 7);
  EXPECT_EQ(world.receivers<protocol::Go>(), Ranks{});
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kApplied);
  EXPECT_EQ(world.finished[0].step, 6);
  EXPECT_EQ(world.finished[0].pause_seconds, 0);
  EXPECT_EQ(world.switcher.plan()->revision, 2U);
}

TEST(PlanSwitch, ChangesTheBatchTwoStepsBeyondTheHighestReportedOne) {
  World world;
  world.train(5);
  world.finish_step(1, 1, 6);
  auto fewer = plan(2, Trigger::kRetune, 3, 4);
  fewer.schedule.micro_batch_size = 2;

  world.offer(fewer);
  world.all_ready(2);

  EXPECT_EQ(world.receivers<protocol::Commit>(), Ranks{0});
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 8);
}

TEST(PlanSwitch, CommitsOnceToStageZeroOfEachReplica) {
  World world(4);
  auto two = plan(1, Trigger::kInitial, 2);
  two.micro_batches = {8, 8};
  two.ranks.push_back({.pod = "pod-2", .replica = 1, .stage = 0});
  two.ranks.push_back({.pod = "pod-3", .replica = 1, .stage = 1});
  world.offer(two);
  world.all_ready(1, 0, 4);
  world.all_loaded(1, 4);
  for (int index = 0; index < 4; ++index) world.finish_step(index, 1, 1);
  world.forget();

  two.revision = 2;
  two.trigger = Trigger::kRetune;
  world.offer(two);
  world.all_ready(2, 0, 4);

  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 2}));
}

TEST(PlanSwitch, TakesANewCutAsANewGenerationAtACommonStep) {
  World world;
  world.train(5);
  auto regrouped = plan(2, Trigger::kRegroup);
  regrouped.stages = {{0, 1}, {2, 2}, {3, 3}};

  world.offer(regrouped);
  world.all_ready(2);

  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 7);
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 0);
}

TEST(PlanSwitch, WaitsForThePodsOfTheFirstPlanAsLongAsItTakes) {
  World world(2);

  world.offer(plan(1, Trigger::kInitial));
  world.pass(1h);
  EXPECT_TRUE(world.sent.empty());
  EXPECT_TRUE(world.finished.empty());

  world.come(2);
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
}

TEST(PlanSwitch, WaitsForTheRightPodUidOnly) {
  World world;
  auto restart = plan(1, Trigger::kRestart);
  restart.ranks[1].pod_uid = "uid-of-a-later-pod";

  world.offer(restart);
  EXPECT_TRUE(world.sent.empty());

  world.lose(1);
  world.come(1, 0, 0, 0, "uid-of-a-later-pod");
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
}

// Pod 3 is to take over from pod 2, which ends before all are READY. A rank may say so first.
TEST(PlanSwitch, GoesOnIfAWorkerEndsThatThePlanReplaces) {
  for (const bool rank_says_so : {false, true}) {
    SCOPED_TRACE(rank_says_so);
    World job(4);
    job.train(5);
    schedule::Plan next = plan(2, schedule::Trigger::kRestart);
    next.state = schedule::StateMove::kRecover;
    next.ranks[2].pod = "pod-3";
    job.offer(next);
    EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kMove);
    job.forget();
    if (rank_says_so) {
      job.say(1, protocol::PeerLost{.stage = 2, .revision = 1, .reason = "connection closed"});
    }
    job.lose(2);
    EXPECT_TRUE(job.finished.empty());
    const auto again = job.last<protocol::Prepare>();
    ASSERT_EQ(again.plan.revision, 2U);
    EXPECT_EQ(again.plan.state, schedule::StateMove::kCheckpoint) << "nobody holds its layer";
    for (const int index : {0, 1, 3}) {
      job.say(index, protocol::Ready{.revision = 2, .incarnation = again.incarnation});
    }
    EXPECT_EQ(job.last<protocol::Commit>().revision, 2U);
    EXPECT_TRUE(job.finished.empty());
  }
}

TEST(PlanSwitch, IgnoresARevisionThatIsNotAboveTheHighestSeen) {
  World world;
  world.train();

  world.offer(plan(1, Trigger::kRetune));

  EXPECT_TRUE(world.sent.empty());
}

TEST(PlanSwitch, DropsAPlanThatIsStillPreparedForANewerOne) {
  World world;
  world.train();
  world.offer(plan(2, Trigger::kRetune));
  world.forget();

  world.offer(plan(3, Trigger::kRetune));

  EXPECT_EQ(world.receivers<protocol::Abort>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Abort>().revision, 2U);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.revision, 3U);
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].revision, 2U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kAborted);
}

TEST(PlanSwitch, FinishesACommittedSwitchBeforeANewerPlan) {
  World world;
  world.train();
  world.offer(plan(2, Trigger::kRetune));
  world.all_ready(2);
  world.forget();

  world.offer(plan(3, Trigger::kRetune));
  EXPECT_TRUE(world.sent.empty());

  world.all_finish_step(2, 6);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.revision, 3U);
}

TEST(PlanSwitch, RefusesAnIllegalPlanByTheRuleThatItBreaks) {
  World world;
  auto illegal = plan(1, Trigger::kInitial);
  illegal.schedule.caps = {1, 2, 3};

  world.offer(illegal);

  EXPECT_TRUE(world.sent.empty());
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kRefused);
  EXPECT_NE(world.finished[0].reason.find("caps"), std::string::npos) << world.finished[0].reason;
}

TEST(PlanSwitch, RefusesThePlanOfAnotherJob) {
  World world;
  auto foreign = plan(1, Trigger::kInitial);
  foreign.job_uid = "other";

  world.offer(foreign);

  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].reason, "plan 1 is of another job: other");
}

TEST(FillPlan, NamesWorkersInOrderWhenThePlanHasNoRanks) {
  World world(4);
  auto open = plan(1, Trigger::kInitial, 2);
  open.job_uid = "";
  open.ranks.clear();
  open.micro_batches = {4, 4};

  const auto filled = fill_plan(open, "job", world.members);

  ASSERT_TRUE(filled.ok());
  EXPECT_EQ(filled->job_uid, "job");
  ASSERT_EQ(filled->ranks.size(), 4U);
  EXPECT_EQ(filled->ranks[3], (schedule::RankPlace{.pod = "pod-3",
                                                   .pod_uid = "uid-3",
                                                   .ip = "10.0.0.3",
                                                   .node = "node-3",
                                                   .replica = 1,
                                                   .stage = 1,
                                                   .data_port = 7074}));
}

TEST(FillPlan, KeepsTheAddressThatThePlanNames) {
  World world;
  auto named = plan(1, Trigger::kInitial);
  named.ranks[0].ip = "10.9.9.9";

  EXPECT_EQ(fill_plan(named, "job", world.members)->ranks[0].ip, "10.9.9.9");
}

// Processes that were started again where others had left snapshots, one layer each.
protocol::Inventory with_snapshot(int index, protocol::Inventory inventory) {
  inventory.history = 3;
  inventory.revision = 1;
  inventory.incarnation = 2;
  for (protocol::Held& one : inventory.held) one.history = 3;
  inventory.held.push_back(
      {.first = index, .last = index, .step = 4, .history = 3, .snapshot = true});
  return inventory;
}

TEST(PlanSwitchFromSnapshots, GoesBackIfALayerIsNowhereLive) {
  World job(0);
  const World trained;
  for (int index = 0; index < 3; ++index) {
    const bool again = index == 1;
    job.members.hello(
        ++job.last_session,
        {.member = member(index),
         .revision = again ? 0U : 1U,
         .step = again ? 0 : 7,
         .inventory = with_snapshot(index, trained.inventory(index, again ? 0 : 1, 7))},
        job.now);
  }
  job.offer(plan(1, schedule::Trigger::kInitial));
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kKeep);
  job.all_ready(1, 3);
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 4);
  EXPECT_EQ(job.last<protocol::Commit>().history, 4);
  EXPECT_FALSE(job.last<protocol::Commit>().verdict);
  job.all_loaded(1);
  job.all_finish_step(1, 5);
  ASSERT_EQ(job.finished.size(), 1U);
  EXPECT_TRUE(job.finished[0].snapshots);
  EXPECT_EQ(job.finished[0].repeated_steps, 3);
}

// Whatever the plan says of the state. The incarnation tells the operator that the plan begins
// again.
TEST(PlanSwitchFromSnapshots, GoesOnIfAllProcessesAreNew) {
  World job(0);
  for (int index = 0; index < 3; ++index) {
    job.members.hello(++job.last_session,
                      {.member = member(index), .inventory = with_snapshot(index, {})}, job.now);
  }
  schedule::Plan wanted = plan(1, schedule::Trigger::kInitial);
  wanted.state = schedule::StateMove::kCheckpoint;  // that was done when the plan began
  job.offer(wanted);
  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 3);
  job.all_ready(1, 3);
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 4);
  job.all_loaded(1);
  job.all_finish_step(1, 5);
  ASSERT_EQ(job.finished.size(), 1U);
  EXPECT_TRUE(job.finished[0].snapshots);
  EXPECT_EQ(job.finished[0].incarnation, 3);
}

// After a change of the cut the snapshots have the cut before it.
TEST(PlanSwitchFromSnapshots, MovesLayersOfAnotherCut) {
  World job(0);
  for (int index = 0; index < 3; ++index) {
    job.members.hello(++job.last_session,
                      {.member = member(index), .inventory = with_snapshot(index, {})}, job.now);
  }
  schedule::Plan other = plan(2, schedule::Trigger::kRegroup, 2);
  other.stages = {{.first = 0, .last = 1}, {.first = 2, .last = 2}};
  job.offer(other);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kMove);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.holders.size(), 3U);
}

}  // namespace plan_switch_test
}  // namespace weir::coordinator::test
