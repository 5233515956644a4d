// SPDX-License-Identifier: Apache-2.0
// Plan changes of a job with two replicas of two stages: workers 0, 1 and 2, 3.
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {
namespace replicas_test {

using schedule::Trigger;

struct Job : World {
  explicit Job(schedule::SyncMode mode = schedule::SyncMode::kExact) : World(4) {
    step_seconds = 0;  // not told: a boundary is two steps ahead
    auto first = replicated(1, Trigger::kInitial, {4, 4});
    first.sync.mode = mode;
    offer(first);
    all_ready(1, 0, 4);
    all_loaded(1, 4);
    for (std::int64_t step = 1; step <= 5; ++step) all_finish_step(1, step, 4);
    forget();
  }
};

TEST(PlanSwitchOfReplicas, CommitsNewSharesToEachFirstStageTwoStepsAhead) {
  Job job;
  job.offer(replicated(2, Trigger::kRetune, {6, 2}));
  EXPECT_EQ(job.receivers<protocol::Prepare>(), (Ranks{0, 1, 2, 3}));
  job.all_ready(2, 0, 4);

  EXPECT_EQ(job.receivers<protocol::Commit>(), (Ranks{0, 2}));
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 7);

  job.all_finish_step(1, 6, 4);
  job.all_finish_step(1, 7, 4);
  EXPECT_TRUE(job.finished.empty());
  job.all_finish_step(2, 8, 4);
  ASSERT_EQ(job.finished.size(), 1U);
  EXPECT_EQ(job.finished[0].outcome, protocol::Outcome::kApplied);
  EXPECT_EQ(job.finished[0].step, 7);
  EXPECT_EQ(job.finished[0].pause_seconds, 0);
}

TEST(PlanSwitchOfReplicas, TakesAnotherNumberOfReplicasForANewGeneration) {
  Job job;
  schedule::Plan fewer = replicated(2, Trigger::kResize, {8});
  fewer.state = schedule::StateMove::kCheckpoint;
  job.switcher.set_checkpoint(4);
  job.offer(fewer);
  job.all_ready(2, 0, 2);

  EXPECT_EQ(job.last<protocol::Prepare>().plan.checkpoint_step, 4);
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 7);
  EXPECT_EQ(job.receivers<protocol::Commit>(), (Ranks{0, 1, 2, 3}))
      << "two learn that they are idle";
}

TEST(PlanSwitchOfReplicas, TellsAllReplicasOfALossInOne) {
  Job job;
  job.say(3, protocol::PeerLost{
                 .replica = 1, .stage = 1, .revision = 1, .reason = "replica 0: closed"});

  EXPECT_EQ(job.receivers<protocol::PeerLost>(), (Ranks{0, 1, 2}));
  EXPECT_TRUE(job.switcher.broken());
}

Ranks of_pods(const std::vector<schedule::LayerHolder>& holders) {
  Ranks list;
  for (const auto& holder : holders) list.push_back(holder.pod.back() - '0');
  return list;
}

// One rank has updated, and the others lack the gradients: the step is done again.
TEST(PlanSwitchOfReplicas, TakeTheStepThatIsHeldByAllStagesIfTheyStandAtDifferentOnes) {
  Job job;
  job.switcher.set_checkpoint(3);
  job.finish_step(0, 1, 6);
  job.say(1, protocol::PeerLost{.replica = 0, .stage = 1, .revision = 1, .reason = "closed"});

  const auto again = job.last<protocol::Prepare>();
  EXPECT_EQ(again.incarnation, 1);
  EXPECT_EQ(again.plan.state, schedule::StateMove::kMove);
  EXPECT_EQ(of_pods(again.plan.holders), (Ranks{1, 2, 3}));
  job.all_ready(1, 1, 4);
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 5);
}

TEST(PlanSwitchOfReplicas, MakeTheUpdateThatTheOthersHaveMade) {
  Job job;
  job.switcher.set_checkpoint(3);
  job.finish_step(0, 1, 6);
  job.summed = {1, 2, 3};
  job.say(1, protocol::PeerLost{.replica = 0, .stage = 1, .revision = 1, .reason = "closed"});

  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kKeep);
  job.all_ready(1, 1, 4);
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 6);
  ASSERT_TRUE(job.last<protocol::Commit>().verdict);
  EXPECT_EQ(job.last<protocol::Commit>().verdict->loss, 0.5);
}

// The operator's plan after a lost worker.
TEST(PlanSwitchOfReplicas, ANewPodTakesTheStateOfItsPeerWhenAPlanSaysRecover) {
  Job job;
  job.switcher.set_checkpoint(3);
  job.lose(1);
  job.come(1, 0, 0, 0, "another uid");
  job.forget();
  auto restart = replicated(2, Trigger::kRestart, {4, 4});
  restart.state = schedule::StateMove::kRecover;
  restart.ranks[1].pod_uid = "another uid";
  job.offer(restart);

  const auto prepared = job.last<protocol::Prepare>();
  EXPECT_EQ(prepared.plan.state, schedule::StateMove::kMove);
  EXPECT_EQ(of_pods(prepared.plan.holders), (Ranks{0, 2, 3}));
  EXPECT_EQ(prepared.plan.checkpoint_step, -1);
  job.all_ready(2, prepared.incarnation, 4);
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 5) << "the step that was hit";
  EXPECT_GT(job.last<protocol::Commit>().history, 0);
  job.all_loaded(2, 4);
  job.all_finish_step(2, 6, 4);
  ASSERT_EQ(job.finished.size(), 1U);
  EXPECT_EQ(job.finished[0].state, schedule::StateMove::kMove);
  EXPECT_EQ(job.finished[0].repeated_steps, 0);
  EXPECT_EQ(job.finished[0].reason, "");
}

TEST(PlanSwitchOfReplicas, RecoverFromANewerCheckpointOrWithoutAPeerFromAnyOne) {
  for (const bool newer : {true, false}) {
    Job job;
    job.switcher.set_checkpoint(newer ? 6 : 3);
    job.lose(1);
    if (!newer) job.lose(3);  // the other rank of that stage
    auto restart = replicated(2, Trigger::kRestart, {4, 4});
    restart.state = schedule::StateMove::kRecover;
    job.offer(restart);
    job.come(1);
    if (!newer) job.come(3);

    EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kCheckpoint);
    EXPECT_EQ(job.last<protocol::Prepare>().plan.checkpoint_step, newer ? 6 : 3);
    const auto incarnation = job.last<protocol::Prepare>().incarnation;
    job.forget();
    job.all_ready(2, incarnation, 4);
    job.all_loaded(2, 4);
    job.all_finish_step(2, newer ? 7 : 4, 4);
    ASSERT_EQ(job.finished.size(), 1U);
    EXPECT_EQ(job.finished[0].state, schedule::StateMove::kCheckpoint);
    EXPECT_EQ(job.finished[0].repeated_steps, newer ? 0 : 2);
    EXPECT_EQ(job.finished[0].reason, newer ? "the checkpoint is newer than what the workers hold"
                                            : "no worker holds layer 1");
  }
}

// Rank 1 is back with nothing, and the others are in the middle of a long op.
struct BusyJob : Job {
  explicit BusyJob(std::int64_t checkpoint) {
    switcher.set_checkpoint(checkpoint);
    tells = false;
    lose(1);
    come(1);
  }
};

TEST(PlanSwitchOfReplicas, WaitUntilTheOthersHaveToldWhatTheyHold) {
  BusyJob job(3);
  job.pass(900ms);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  EXPECT_EQ(job.receivers<protocol::PeerLost>().size(), 3U);
  job.pass(200ms);
  EXPECT_EQ(job.receivers<protocol::PeerLost>().size(), 6U) << "they are asked again";
  for (const int rank : {0, 2, 3}) job.tell(rank);
  job.pass(1ms);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kMove);
}

// Only a rank that makes no step until the progress deadline counts as one that holds nothing.
TEST(PlanSwitchOfReplicas, WaitsLongerForRanksWithoutWhichStepsWereRepeated) {
  for (const bool answers : {true, false}) {
    BusyJob job(3);
    job.pass(60s);
    EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
    job.forget();
    job.pass(1s);
    EXPECT_EQ(job.receivers<protocol::PeerLost>(), (Ranks{0, 2, 3})) << "they are asked on";
    if (answers) {
      job.tell(0);
      job.tell(3);
      job.pass(1ms);
      EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kMove)
          << "both layers are held, so rank 2 has nothing that is missing";
    } else {
      job.pass(1800s);
      EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kCheckpoint);
    }
  }
}

TEST(PlanSwitchOfReplicas, DoesNotWaitLongerForASingleStep) {
  BusyJob job(4);
  job.pass(1s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  job.pass(10s);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kCheckpoint);
}

TEST(PlanSwitchOfReplicas, RecoverWhatIsHeldIfTheCoordinatorIsNewToRanksThatStillTrain) {
  Job trained;
  World job(0);
  for (int index = 0; index < 4; ++index) {
    auto inventory = trained.inventory(index, 1, 5);
    inventory.running = index > 0;
    job.members.hello(++job.last_session,
                      {.member = member(index), .revision = 1, .step = 5, .inventory = inventory},
                      job.now);
  }
  job.tells = false;
  job.offer(replicated(1, Trigger::kInitial, {4, 4}));
  EXPECT_EQ(job.receivers<protocol::PeerLost>(), (Ranks{1, 2, 3})) << "they drop their step";
  for (int index = 1; index < 4; ++index) {
    job.members.inventory(index, trained.inventory(index, 1, index == 1 ? 6 : 5));
  }
  job.pass(1ms);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kMove);
}

// Its container was restarted: the plan, which says Checkpoint, is in force already.
TEST(PlanSwitchOfReplicas, ANewCoordinatorDoesNotSendRanksBackThatHaveTrainedWithThePlan) {
  Job trained;
  World job(0);
  for (int index = 0; index < 4; ++index) {
    const bool is_new = index == 0;
    job.members.hello(++job.last_session,
                      {.member = member(index),
                       .revision = is_new ? 0U : 1U,
                       .step = is_new ? 0 : 5,
                       .inventory = trained.inventory(index, is_new ? 0 : 1, is_new ? 0 : 5)},
                      job.now);
  }
  auto first = replicated(1, Trigger::kInitial, {4, 4});
  first.state = schedule::StateMove::kCheckpoint;
  job.offer(first);

  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kMove);
  EXPECT_EQ(of_pods(job.last<protocol::Prepare>().plan.holders), (Ranks{1, 2, 3}));
}

// The others go on; all meet them again, as soon as all pods are there, with their state.
TEST(PlanSwitchOfReplicas, GoOnWithoutAReplicaWhenTheyAverage) {
  Job job(schedule::SyncMode::kPartial);
  job.switcher.set_checkpoint(3);
  job.lose(1);

  EXPECT_EQ(job.receivers<protocol::PeerLost>(), Ranks{0}) << "the other rank of that replica";
  EXPECT_EQ(job.switcher.lost(), std::set<int>{0});
  ASSERT_NE(job.switcher.training(), nullptr);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  for (const int rank : {2, 3}) job.finish_step(rank, 1, 9);
  job.forget();

  job.come(1);
  const auto again = job.last<protocol::Prepare>();
  EXPECT_EQ(job.receivers<protocol::Prepare>(), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(again.incarnation, 1);
  EXPECT_EQ(again.plan.state, schedule::StateMove::kMove);
  EXPECT_EQ(of_pods(again.plan.holders), (Ranks{2, 3})) << "those that train";
  job.all_ready(1, 1, 4);
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 11);
  EXPECT_EQ(job.receivers<protocol::Commit>(), (Ranks{0, 1, 2, 3}));
  job.all_loaded(1, 4);
  EXPECT_TRUE(job.switcher.lost().empty());
  job.all_finish_step(1, 12, 4);
  EXPECT_EQ(job.switcher.training()->revision, 1U);
  EXPECT_TRUE(job.finished.empty() || job.finished.back().outcome == protocol::Outcome::kApplied);
}

// What the operator knows is that a pod was lost: its plan says Checkpoint.
TEST(PlanSwitchOfReplicas, TakeTheStateFromThoseThatTrainWhateverTheNextPlanSays) {
  for (const auto trigger : {Trigger::kRestart, Trigger::kManual}) {
    Job one(schedule::SyncMode::kPartial);
    one.lose(3);
    one.come(3, 0, 0, 0, "another uid");
    auto next = replicated(2, trigger, {4, 4});  // Exact
    next.state = schedule::StateMove::kCheckpoint;
    one.offer(next);
    const auto prepared = one.last<protocol::Prepare>();
    EXPECT_EQ(prepared.plan.revision, 2U);
    EXPECT_EQ(prepared.plan.state, schedule::StateMove::kMove);
    EXPECT_EQ(of_pods(prepared.plan.holders), (Ranks{0, 1}));
    one.all_ready(2, prepared.incarnation, 4);
    EXPECT_EQ(one.receivers<protocol::Commit>(), (Ranks{0, 1, 2, 3})) << "a new generation";
  }
}

TEST(PlanSwitchOfReplicas, BreakWhenTheLastReplicaIsLost) {
  Job job(schedule::SyncMode::kPartial);
  job.switcher.set_checkpoint(3);
  job.lose(1);
  job.forget();
  job.lose(2);
  EXPECT_EQ(job.switcher.training(), nullptr);
  EXPECT_TRUE(job.switcher.lost().empty());
  job.come(1);
  job.come(2);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kCheckpoint);
}

// Nothing is lost but a connection, and by that of one after the other: both hold their models.
TEST(PlanSwitchOfReplicas, KeepsWhatReplicasHoldThatAverage) {
  Job job(schedule::SyncMode::kPartial);
  job.switcher.set_checkpoint(3);
  job.finish_step(0, 1, 9);
  job.say(1, protocol::PeerLost{.replica = 0, .stage = 1, .revision = 1, .reason = "closed"});
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kMove);
  job.say(3, protocol::PeerLost{.replica = 1, .stage = 1, .revision = 1, .reason = "closed"});

  job.pass(2s);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kKeep);
  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 2);
  job.all_ready(1, 2, 4);
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 9);
}

TEST(PlanSwitchOfReplicas, ALossWhileTheOthersJoinAgainBreaksNothingBeforeCommit) {
  Job job(schedule::SyncMode::kPartial);
  job.lose(1);
  job.come(1);
  ASSERT_EQ(job.receivers<protocol::Prepare>().size(), 4U);
  job.lose(1);
  EXPECT_EQ(job.receivers<protocol::Abort>().size(), 3U) << "nobody waits for its answer";
  ASSERT_NE(job.switcher.training(), nullptr);
  job.forget();
  job.come(1);
  job.pass(2s);
  EXPECT_EQ(job.receivers<protocol::Prepare>().size(), 4U);
}

TEST(PlanSwitchOfReplicas, ALossBetweenCommitAndGoLoadsTheCheckpoint) {
  Job job(schedule::SyncMode::kPartial);
  job.switcher.set_checkpoint(3);
  job.lose(1);
  job.come(1);
  job.all_ready(1, 1, 4);
  ASSERT_FALSE(job.receivers<protocol::Commit>().empty());
  job.lose(3);
  EXPECT_EQ(job.switcher.training(), nullptr);
  job.come(3);
  job.pass(2s);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kCheckpoint);
}

TEST(PlanSwitchOfReplicas, ALossWhileAPlanIsTakenUpInBandIsNoneOfTheOthers) {
  Job job(schedule::SyncMode::kPartial);
  auto shares = replicated(2, Trigger::kRetune, {6, 2});
  shares.sync.mode = schedule::SyncMode::kPartial;
  job.offer(shares);
  job.all_ready(2, 0, 4);
  ASSERT_EQ(job.receivers<protocol::Commit>(), (Ranks{0, 2}));
  for (const int rank : {0, 1}) job.finish_step(rank, 2, 8);
  EXPECT_TRUE(job.finished.empty());
  job.lose(2);
  ASSERT_EQ(job.finished.size(), 1U);
  EXPECT_EQ(job.finished[0].outcome, protocol::Outcome::kApplied);
  EXPECT_EQ(job.switcher.lost(), std::set<int>{1});
  job.forget();
  job.come(2);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.revision, 2U);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kMove);
}

// A change of mode that some have taken up and others not: the others have not met.
TEST(PlanSwitchOfReplicas, LoadsTheCheckpointWhenAChangeToExactStepsBreaks) {
  Job job(schedule::SyncMode::kPartial);
  job.switcher.set_checkpoint(3);
  job.offer(replicated(2, Trigger::kManual, {4, 4}));
  job.all_ready(2, 0, 4);
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 7) << "where all meet";
  job.say(1, protocol::PeerLost{.replica = 0, .stage = 1, .revision = 1, .reason = "closed"});

  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 1);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kCheckpoint);
}

TEST(PlanSwitchOfReplicas, KeepsAnExactPlanOnceAllHaveMet) {
  Job job(schedule::SyncMode::kPartial);
  job.switcher.set_checkpoint(3);
  job.offer(replicated(2, Trigger::kManual, {4, 4}));
  job.all_ready(2, 0, 4);
  job.all_finish_step(1, 7, 4);
  job.all_finish_step(2, 8, 4);
  ASSERT_EQ(job.finished.size(), 1U);
  job.say(1, protocol::PeerLost{.replica = 0, .stage = 1, .revision = 2, .reason = "closed"});

  EXPECT_EQ(job.last<protocol::Prepare>().plan.state, schedule::StateMove::kKeep);
}

}  // namespace replicas_test
}  // namespace weir::coordinator::test
