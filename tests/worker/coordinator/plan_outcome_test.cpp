// SPDX-License-Identifier: Apache-2.0
// Faults during and after a switch (worker/coordinator/README.md "Failures"), and the rejoin.
#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {
namespace plan_outcome_test {

using protocol::Outcome;
using schedule::StateMove;
using schedule::Trigger;

TEST(PlanOutcome, OneRejectAbortsAndTheOldPlanStays) {
  World world;
  world.train();
  world.offer(plan(2, Trigger::kRetune));
  world.say(0, protocol::Ready{.revision = 2});
  world.say(1, protocol::Reject{.revision = 2, .reason = "needs 9 GB, 8 GB free"});

  EXPECT_EQ(world.receivers<protocol::Abort>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.receivers<protocol::Commit>(), Ranks{});
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kRefused);
  EXPECT_EQ(world.finished[0].reason, "pod-1: needs 9 GB, 8 GB free");
  EXPECT_EQ(world.switcher.plan()->revision, 1U);

  world.forget();
  world.say(2, protocol::Ready{.revision = 2});  // too late
  EXPECT_TRUE(world.sent.empty());
  world.offer(plan(3, Trigger::kRetune));
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
}

TEST(PlanOutcome, ARefusedInitialPlanIsReportedAndTheNextRevisionIsTaken) {
  World world;
  world.offer(plan(1, Trigger::kInitial));
  world.say(0, protocol::Ready{.revision = 1});
  world.say(2, protocol::Reject{.revision = 1, .reason = "needs 9 GB, 8 GB free"});

  EXPECT_EQ(world.receivers<protocol::Abort>(), (Ranks{0, 1, 2}));
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].revision, 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kRefused);
  EXPECT_EQ(world.finished[0].reason, "pod-2: needs 9 GB, 8 GB free");
  EXPECT_EQ(world.switcher.plan(), nullptr);
  EXPECT_EQ(world.switcher.highest_seen(), 1U) << "the next poll asks for a later one";

  world.forget();
  world.pass(1h);
  EXPECT_TRUE(world.sent.empty()) << "it is not tried again";
  world.offer(plan(2, Trigger::kInitial));
  world.all_ready(2);
  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2}));
}

TEST(PlanOutcome, APlanThatIsNotTakenUpAfterCommitIsJoinedAnew) {
  World world;
  world.train(5);
  world.offer(plan(2, Trigger::kRetune));
  world.all_ready(2);
  world.finish_step(0, 2, 6);
  world.finish_step(1, 2, 6);
  world.forget();

  world.finish_step(2, 1, 12);  // it may have been told of the COMMIT too late
  EXPECT_TRUE(world.sent.empty());
  world.pass(10s);
  world.finish_step(2, 1, 9);  // not that many steps
  EXPECT_TRUE(world.sent.empty());
  world.finish_step(2, 1, 13);

  EXPECT_EQ(world.receivers<protocol::PeerLost>(), (Ranks{0, 1, 2}));
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kAborted);
  EXPECT_EQ(world.finished[0].reason, "plan 2 was not taken up after COMMIT by pod-2");
  EXPECT_EQ(world.last<protocol::Prepare>().plan.revision, 2U);
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 1);
}

TEST(PlanOutcome, ASwitchAfterWhichNobodySaysAnythingEndsAtTheProgressDeadline) {
  World world;
  world.train(5);
  world.offer(plan(2, Trigger::kRetune));
  world.all_ready(2);
  world.forget();

  world.pass(1799s);
  EXPECT_TRUE(world.finished.empty());
  world.pass(1s);

  EXPECT_EQ(world.receivers<protocol::PeerLost>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.finished.at(0).outcome, Outcome::kAborted);
}

TEST(PlanOutcome, RanksWithoutAStageHearOfEveryNewGenerationAndOfNothingElse) {
  World world(4);  // three stages: worker 3 is idle
  world.offer(plan(1, Trigger::kInitial));
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2, 3}));
  world.all_ready(1);  // worker 3 need not answer
  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2, 3}));
  world.all_loaded(1);
  EXPECT_EQ(world.receivers<protocol::Go>(), (Ranks{0, 1, 2, 3}));
  world.all_finish_step(1, 1);
  EXPECT_EQ(world.finished.back().outcome, Outcome::kApplied);

  world.forget();
  world.offer(plan(2, Trigger::kRetune));
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
  world.all_ready(2);
  EXPECT_EQ(world.receivers<protocol::Commit>(), Ranks{0});
  world.all_finish_step(2, 2);

  world.forget();
  auto moved = plan(3, Trigger::kRegroup);  // the idle one takes the last stage
  moved.ranks[2].pod = "pod-3";
  moved.state = StateMove::kCheckpoint;
  world.offer(moved);
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2, 3}));
  for (const int index : {0, 1, 3}) world.say(index, protocol::Ready{.revision = 3});
  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2, 3}));
  for (const int index : {0, 1}) world.say(index, protocol::ReadyState{.revision = 3});
  EXPECT_EQ(world.receivers<protocol::Go>(), Ranks{});
  world.say(3, protocol::ReadyState{.revision = 3});
  EXPECT_EQ(world.receivers<protocol::Go>(), (Ranks{0, 1, 2, 3}));
}

TEST(PlanOutcome, SilenceAfterPrepareRefusesAndNamesThePod) {
  World world;
  world.train();
  world.offer(plan(2, Trigger::kRetune));
  world.say(0, protocol::Ready{.revision = 2});
  world.say(2, protocol::Ready{.revision = 2});

  world.pass(9s);
  EXPECT_TRUE(world.finished.empty());
  world.pass(1s);

  EXPECT_EQ(world.receivers<protocol::Abort>(), (Ranks{0, 1, 2}));
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kRefused);
  EXPECT_EQ(world.finished[0].reason, "no answer to PREPARE within 10 s from pod-1");
}

// A rank answers between two ops, so a step may pass, and in band two or three until the new plan
// is in force.
TEST(PlanOutcome, ARetuneBesideStepsOfAnHourIsApplied) {
  World world;
  world.step_seconds = 3600;
  world.train();

  world.offer(plan(2, Trigger::kRetune));
  world.pass(3500s);
  world.all_ready(2);
  ASSERT_EQ(world.receivers<protocol::Commit>(), Ranks{0});
  for (int step = 6; step < 8; ++step) {
    world.pass(3600s);
    world.all_finish_step(1, step);
  }
  world.pass(3600s);
  world.all_finish_step(2, 8);

  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kApplied);
  EXPECT_EQ(world.receivers<protocol::PeerLost>(), Ranks{});
}

TEST(PlanOutcome, TheFirstStepOfAPlanMayTakeAnHour) {
  World world;
  world.offer(plan(1, Trigger::kInitial));
  world.all_ready(1);
  world.all_loaded(1);
  world.forget();

  for (int minute = 0; minute < 60; ++minute) world.pass(60s);
  world.all_finish_step(1, 1);

  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kApplied);
}

TEST(PlanOutcome, PatienceFollowsTheDeadlineOfProgress) {
  World hasty(3, 10s), patient(3, std::chrono::hours(24 * 365 * 50));
  for (World* world : {&hasty, &patient}) {
    world->offer(plan(1, Trigger::kInitial));
    world->all_ready(1);
    world->say(0, protocol::ReadyState{.revision = 1});
    world->forget();
  }

  hasty.pass(10s);
  patient.pass(std::chrono::hours(1000));

  EXPECT_EQ(hasty.receivers<protocol::Abort>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(patient.receivers<protocol::Abort>(), Ranks{});
  patient.say(1, protocol::ReadyState{.revision = 1});
  patient.say(2, protocol::ReadyState{.revision = 1});
  patient.pass(std::chrono::hours(1000));
  EXPECT_TRUE(patient.finished.empty());
}

TEST(PlanOutcome, ARetuneForAPodThatIsNotThereIsRefusedAfterThePrepareTime) {
  World world;
  world.train();
  auto elsewhere = plan(2, Trigger::kRetune);
  elsewhere.ranks[2].pod = "pod-9";

  world.offer(elsewhere);
  world.pass(9s);
  EXPECT_TRUE(world.finished.empty());
  world.pass(1s);

  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kRefused);
  EXPECT_EQ(world.finished[0].reason, "pod pod-9 is not connected");
  EXPECT_TRUE(world.sent.empty());
}

TEST(PlanOutcome, DeathBetweenReadyAndCommitAborts) {
  World world;
  world.train();
  world.offer(plan(2, Trigger::kRetune));
  world.say(0, protocol::Ready{.revision = 2});
  world.say(1, protocol::Ready{.revision = 2});
  world.forget();

  world.lose(1);

  EXPECT_EQ(world.receivers<protocol::Abort>(), (Ranks{0, 2}));
  EXPECT_EQ(world.receivers<protocol::PeerLost>(), (Ranks{0, 2}));
  EXPECT_EQ(world.last<protocol::PeerLost>().stage, 1);
  EXPECT_EQ(world.receivers<protocol::Commit>(), Ranks{});
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].revision, 2U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kAborted);

  world.forget();
  world.come(1, 1, 0, 5);  // the same pod is back: the old plan, joined again
  EXPECT_EQ(world.last<protocol::Prepare>().plan.revision, 1U);
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 1);
}

TEST(PlanOutcome, DeathBeforeTheFirstCommitWaitsForTheSamePodOrANewRevision) {
  World world;
  world.offer(plan(1, Trigger::kInitial));
  world.say(0, protocol::Ready{.revision = 1});
  world.forget();

  world.lose(2);
  EXPECT_EQ(world.receivers<protocol::Abort>(), (Ranks{0, 1}));
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kAborted);

  world.come(2);
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 1);
  world.say(0, protocol::Ready{.revision = 1, .incarnation = 0});  // of the first PREPARE
  world.say(1, protocol::Ready{.revision = 1, .incarnation = 1});
  world.say(2, protocol::Ready{.revision = 1, .incarnation = 1});
  EXPECT_EQ(world.receivers<protocol::Commit>(), Ranks{});
  world.say(0, protocol::Ready{.revision = 1, .incarnation = 1});
  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2}));
}

TEST(PlanOutcome, DeathAfterACommitInBandIsJoinedAgainWithTheNewPlan) {
  World world;
  world.train();
  world.offer(plan(2, Trigger::kRetune));
  world.all_ready(2);
  world.forget();

  world.lose(2);
  EXPECT_EQ(world.receivers<protocol::PeerLost>(), (Ranks{0, 1}));
  EXPECT_EQ(world.finished.at(0).outcome, Outcome::kAborted);

  world.come(2, 1, 0, 5);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.revision, 2U);
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 1);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kKeep);
  world.all_ready(2, 1);
  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 5);
  world.all_loaded(2);
  world.all_finish_step(2, 6);
  EXPECT_EQ(world.finished.back().outcome, Outcome::kApplied);
  EXPECT_EQ(world.finished.back().reason, "joined again, incarnation 1");
  EXPECT_EQ(world.switcher.incarnation(), 1);
}

TEST(PlanOutcome, ARankThatCannotLoadAbortsTheGenerationAndItIsTriedAgainLater) {
  World world;
  world.offer(plan(1, Trigger::kInitial));
  world.all_ready(1);
  world.say(0, protocol::ReadyState{.revision = 1});
  world.forget();

  world.say(1, protocol::ReadyState{.revision = 1, .error = "no link to stage 2"});

  EXPECT_EQ(world.receivers<protocol::Abort>(), (Ranks{0, 1, 2}));
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, Outcome::kAborted);
  EXPECT_EQ(world.finished[0].reason, "pod-1: no link to stage 2");
  EXPECT_EQ(world.receivers<protocol::Prepare>(), Ranks{});

  world.pass(1s);
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 1);
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
}

TEST(PlanOutcome, ReadyStateThatNeverComesIsGivenUpAfterTheProgressDeadline) {
  World world;
  world.offer(plan(1, Trigger::kInitial));
  world.all_ready(1);
  world.forget();

  world.pass(1799s);
  EXPECT_TRUE(world.finished.empty());
  world.pass(1s);

  EXPECT_EQ(world.finished.at(0).outcome, Outcome::kAborted);
  EXPECT_EQ(world.receivers<protocol::Abort>(), (Ranks{0, 1, 2}));
}

TEST(PlanOutcome, ABrokenLinkOfTwoLivingRanksIsJoinedAgainAtOnce) {
  World world;
  world.train(7);

  world.say(1, protocol::PeerLost{.stage = 2, .revision = 1, .reason = "reset by peer"});

  EXPECT_EQ(world.receivers<protocol::PeerLost>(), (Ranks{0, 2}));
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 1);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kKeep);

  world.forget();
  world.say(2, protocol::PeerLost{.stage = 1, .revision = 1, .reason = "reset by peer"});
  EXPECT_TRUE(world.sent.empty()) << "the other end tells the same";
}

TEST(PlanOutcome, RanksAtDifferentStepsStartAgainFromTheCheckpoint) {
  World world;
  world.train(7);
  world.finish_step(2, 1, 8);  // the last stage is one step ahead

  world.say(1, protocol::PeerLost{.stage = 0, .revision = 1, .reason = "reset by peer"});
  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kCheckpoint);
  world.all_ready(1, 1);

  EXPECT_EQ(world.last<protocol::Commit>().at_step, 0);
}

TEST(PlanOutcome, RanksThatLackOnlyAnUpdateMakeItAlone) {
  World world;
  world.train(7);
  world.finish_step(0, 1, 8);
  world.summed = {1, 2};
  world.say(1, protocol::PeerLost{.stage = 0, .revision = 1, .reason = "reset by peer"});
  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kKeep);
  world.all_ready(1, 1);

  EXPECT_EQ(world.last<protocol::Commit>().at_step, 8);
  EXPECT_TRUE(world.last<protocol::Commit>().verdict);
}

TEST(PlanOutcome, AProcessThatCameBackWithoutStateStartsFromTheCheckpoint) {
  World world;
  world.train(7);
  world.lose(1);
  EXPECT_EQ(world.receivers<protocol::PeerLost>(), (Ranks{0, 2}));
  EXPECT_EQ(world.receivers<protocol::Prepare>(), Ranks{});

  world.come(1);

  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kCheckpoint);
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 1);
}

TEST(PlanOutcome, ANewRevisionAfterADeathIsTakenInsteadOfTheRejoin) {
  World world;
  world.train(7);
  world.lose(1);
  world.forget();
  auto restart = plan(2, Trigger::kRestart);
  restart.ranks[1].pod_uid = "uid-1-again";
  restart.state = StateMove::kCheckpoint;

  world.offer(restart);
  world.pass(1min);
  EXPECT_TRUE(world.sent.empty());
  world.come(1, 0, 0, 0, "uid-1-again");

  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Prepare>().plan.revision, 2U);
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 0);
  world.all_ready(2);
  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 0);
}

TEST(PlanOutcome, ARetuneOfABrokenGenerationConnectsAnew) {
  World world;
  world.train(7);
  world.lose(1);
  world.offer(plan(2, Trigger::kRetune));
  world.forget();

  world.come(1, 1, 0, 7);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.revision, 2U);
  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 1);
  world.all_ready(2, 1);

  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 7);
}

TEST(PlanOutcome, ACoordinatorThatRoseAgainCountsTheIncarnationOn) {
  World world(0);
  for (int index = 0; index < 3; ++index) world.come(index, 4, 2, 30);

  world.offer(plan(4, Trigger::kRetune));

  EXPECT_EQ(world.last<protocol::Prepare>().incarnation, 3);
  world.all_ready(4, 3);
  EXPECT_EQ(world.receivers<protocol::Commit>(), (Ranks{0, 1, 2}));
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 30);
}

TEST(PlanOutcome, ALossToldBeforeReadyStateMeansTheOldGeneration) {
  World world;
  world.train(7);
  world.say(1, protocol::PeerLost{.stage = 2, .revision = 1, .reason = "reset by peer"});
  world.all_ready(1, 1);
  world.say(0, protocol::ReadyState{.revision = 1});
  world.forget();

  world.say(2, protocol::PeerLost{.stage = 1, .revision = 1, .reason = "reset by peer"});
  EXPECT_TRUE(world.sent.empty());

  world.say(0, protocol::PeerLost{.stage = 1, .revision = 1, .reason = "reset by peer"});
  EXPECT_EQ(world.receivers<protocol::Abort>(), (Ranks{0, 1, 2}));
}

TEST(PlanOutcome, TheEndOfAPodWithoutAStageChangesNothing) {
  World world(4);
  world.train();

  world.lose(3);

  EXPECT_TRUE(world.sent.empty());
  EXPECT_FALSE(world.switcher.broken());
}

TEST(PlanOutcome, RejoinsThatFailAreTriedEverMoreSlowly) {
  World world;
  world.train(7);
  world.say(1, protocol::PeerLost{.stage = 2, .revision = 1, .reason = "reset by peer"});
  int incarnation = 1;
  for (const auto pause : {1s, 2s, 4s, 8s}) {
    world.say(0, protocol::Reject{.revision = 1, .reason = "no", .incarnation = incarnation});
    world.forget();
    world.pass(pause - 1ms);
    EXPECT_EQ(world.receivers<protocol::Prepare>(), Ranks{});
    world.pass(1ms);
    EXPECT_EQ(world.last<protocol::Prepare>().incarnation, ++incarnation);
  }
}

TEST(PlanOutcome, RanksLoadTheNewestCheckpoint) {
  World world;
  world.switcher.set_checkpoint(40);
  world.train(50);
  world.switcher.set_checkpoint(45);
  world.lose(1);

  world.come(1);

  EXPECT_EQ(world.last<protocol::Prepare>().plan.checkpoint_step, 45);
}

TEST(PlanOutcome, AJobOfNewProcessesLoadsTheNewestCheckpointWhateverThePlanSays) {
  World world;
  world.switcher.set_checkpoint(40);

  world.offer(plan(1, Trigger::kInitial));

  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kCheckpoint);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.checkpoint_step, 40);
}

TEST(PlanOutcome, WithoutACheckpointAPlanNamesNone) {
  World world;
  world.offer(plan(1, Trigger::kInitial));
  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kKeep);
  world.train(7);
  world.lose(1);

  world.come(1);

  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kCheckpoint);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.checkpoint_step, -1);
}

TEST(PlanOutcome, ARankThatCouldNotLoadIsNotTakenForOneWithState) {
  World world;
  world.switcher.set_checkpoint(40);
  world.train(50);
  auto restart = plan(2, Trigger::kRestart);
  restart.state = StateMove::kCheckpoint;
  world.offer(restart);
  world.all_ready(2);
  world.say(0, protocol::ReadyState{.revision = 2, .step = 40});
  world.switcher.set_checkpoint(30);  // the rank has told why, before
  world.forget();

  world.say(1, protocol::ReadyState{.revision = 2, .error = "layer 1: another SHA-256"});
  world.pass(2s);

  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kCheckpoint);
  EXPECT_EQ(world.last<protocol::Prepare>().plan.checkpoint_step, 30);
}

TEST(PlanOutcome, RanksThatHoldTheirStateCouldNotConnectAndStandTogether) {
  World world;
  world.train(7);
  world.say(1, protocol::PeerLost{.stage = 2, .revision = 1, .reason = "reset by peer"});
  world.all_ready(1, 1);
  for (const int i : {0, 1}) world.say(i, protocol::ReadyState{.revision = 1, .step = 7});

  world.say(2, protocol::ReadyState{
                   .revision = 1, .error = "no link to stage 1", .step = 7, .holds = true});
  world.pass(2s);
  world.all_ready(1, 2);

  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kKeep);
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 7);
}

TEST(PlanOutcome, RanksThatHaveJustLoadedStandTogether) {
  World world;
  world.switcher.set_checkpoint(40);
  world.train(50);
  auto restart = plan(2, Trigger::kRestart);
  restart.state = StateMove::kCheckpoint;
  world.offer(restart);
  world.all_ready(2);
  for (int i = 0; i < 3; ++i) world.say(i, protocol::ReadyState{.revision = 2, .step = 40});
  world.forget();

  world.say(1, protocol::PeerLost{.stage = 0, .revision = 2, .reason = "reset by peer"});
  world.pass(2s);
  world.all_ready(2, 1);

  EXPECT_EQ(world.last<protocol::Prepare>().plan.state, StateMove::kKeep);
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 40);
}

}  // namespace plan_outcome_test
}  // namespace weir::coordinator::test
