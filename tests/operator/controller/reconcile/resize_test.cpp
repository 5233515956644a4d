// SPDX-License-Identifier: Apache-2.0
// Jobs of several replicas: pods and plans of all of them, and edits of parallelism.dataParallel
// while they run.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"
#include "worker/schedule/validate.h"

namespace weir::reconcile::test {
namespace resize_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

World running(int replicas, std::int64_t checkpoint = 40) {
  World world = two_stages(replicas);
  world.last_checkpoint = checkpoint;
  world.run();
  return world;
}

std::set<std::string> pods_of(const schedule::Plan& plan) {
  std::set<std::string> names;
  for (const auto& rank : plan.ranks) names.insert(rank.pod);
  return names;
}

void scale(World& world, int replicas) {
  world.job.spec.data_parallel = replicas;
  world.job.meta.generation += 1;
  world.settle();
}

TEST(Replicas, GetPodsAndOnePlanTogether) {
  World world = running(2);

  EXPECT_EQ(world.pods.size(), 4U);
  EXPECT_EQ(world.pods.back().meta.name, "job-gpu-3");
  ASSERT_NE(world.plan(), nullptr);
  const auto& plan = *world.plan();
  EXPECT_TRUE(schedule::broken_rules(plan, 4).empty());
  EXPECT_EQ(plan.micro_batches, (std::vector<int>{8, 8}));
  EXPECT_EQ(plan.ranks.size(), 4U);
  EXPECT_EQ(pods_of(plan).size(), 4U);
  EXPECT_EQ(plan.sync.mode, schedule::SyncMode::kExact);
  const auto& status = world.job.status;
  EXPECT_EQ(status.data_parallel, 2);
  EXPECT_EQ(status.workers_summary, "4/4");
  EXPECT_EQ(status.worker_groups[0].desired, 4);
  ASSERT_EQ(status.plan.stages.size(), 2U) << "one entry a stage: the list is a map by index";
  EXPECT_EQ(status.plan.stages[0].replicas, 2);
  EXPECT_EQ(status.plan.micro_batches, 8);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Replicas, TheStatusShowsHowTheyKeepOneModel) {
  World world = running(2);
  world.steps(1, 1);
  world.now += 1min;
  world.report->received = world.now;
  world.settle();

  const auto& report = world.job.report;
  EXPECT_EQ(report.sync_mode, "Exact");
  EXPECT_EQ(report.micro_batch_shares, (std::vector<int>{8, 8}));
  EXPECT_EQ(report.sync_group_size_max, 2);
  EXPECT_EQ(report.sync_mean_group_size, "2.0");
  EXPECT_EQ(report.sync_max_staleness, "0");
}

TEST(Replicas, AverageInGroupsWhereTheSpecSaysSo) {
  World world = two_stages(2);
  world.job.spec.sync_mode = "Partial";
  world.job.spec.sync_max_staleness = 9;
  world.run();
  ASSERT_NE(world.plan(), nullptr);
  EXPECT_EQ(world.plan()->sync.mode, schedule::SyncMode::kPartial);
  EXPECT_EQ(world.plan()->sync.max_staleness, 9);
  EXPECT_EQ(world.plan()->sync.group_size_max, 2);
  EXPECT_TRUE(schedule::broken_rules(*world.plan(), 4).empty());
  world.steps(1, 1);
  world.report->body.sync = {.rounds = 4, .mean_group_size = 1.5, .max_staleness = 2.25};
  world.now += 1min;
  world.report->received = world.now;
  world.settle();

  EXPECT_EQ(world.job.report.sync_mode, "Partial");
  EXPECT_EQ(world.job.report.sync_mean_group_size, "1.5");
}

TEST(Replicas, ChangeTheirModeInBandWhenTheSpecIsEdited) {
  World world = running(2);
  world.job.spec.sync_mode = "Partial";
  world.job.meta.generation += 1;
  world.settle();
  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->sync.mode, schedule::SyncMode::kPartial);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kManual);
  EXPECT_TRUE(schedule::same_generation(world.plans[0], world.plans[1]));
  EXPECT_EQ(world.event_count("SyncPolicyChanged"), 1);
}

TEST(Replicas, ShareOutWhatDoesNotDivide) {
  World world = two_stages(3);
  world.job.spec.micro_batch_size.reset();
  world.job.spec.global_batch = 12;
  world.run();

  ASSERT_NE(world.plan(), nullptr);
  EXPECT_EQ(world.plan()->step_micro_batches() * world.plan()->schedule.micro_batch_size, 12);
  EXPECT_TRUE(schedule::broken_rules(*world.plan(), 4).empty());
}

TEST(Replicas, PodsOfOneGroupOnUnlikeDevicesStillMakeEqualReplicas) {
  World world = two_stages(2);
  world.settle();
  world.kubelets_run();
  world.workers_register();
  std::int64_t memory = 1'000'000'000;
  for (auto& member : world.members->body.members) {
    member.ranks.front().memory_bytes = memory += 1'000;
    if (member.pod == "job-gpu-3") member.ranks.front().device = "B";  // three of A, one of B
  }
  world.settle();

  ASSERT_NE(world.plan(), nullptr) << world.condition("Accepted").message;
  EXPECT_EQ(world.plan()->ranks.size(), 4U);
  EXPECT_EQ(world.plan()->stage_count(), 2);
}

TEST(Replicas, AMemberLostInAnyOfThemIsARestartOfAll) {
  World world = running(2);
  world.report->body.step = 50;
  world.fail("job-gpu-3", 1);
  world.settle();
  EXPECT_EQ(world.condition("Ready").reason, "Restarting");
  world.kubelets_run();
  world.workers_register();
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  ASSERT_EQ(world.plan()->revision, 2U);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.plan()->replica_count(), 2);
  EXPECT_TRUE(pods_of(*world.plan()).contains("job-gpu-3-1"));
  EXPECT_FALSE(pods_of(*world.plan()).contains("job-gpu-3"));
}

TEST(ScaleUp, TrainingGoesOnUntilTheNewPodsHaveRegistered) {
  World world = running(1);
  scale(world, 2);

  EXPECT_EQ(world.pods.size(), 4U);
  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.job.status.data_parallel, 1);
  EXPECT_EQ(world.job.status.workers_summary, "2/4");
  EXPECT_EQ(world.job.status.worker_groups[0].desired, 4);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.condition("Ready").status, "True");

  world.kubelets_run();
  world.settle();
  EXPECT_EQ(world.job.status.plan.revision, 1) << "a running pod is not a member yet";

  world.workers_register();
  world.settle();
  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kResize);
  EXPECT_EQ(world.plan()->replica_count(), 2);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kMove) << "from live replicas";
  EXPECT_EQ(world.condition("Ready").reason, "Replanning");
  EXPECT_EQ(world.job.status.data_parallel, 1) << "not applied yet";

  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.data_parallel, 2);
  EXPECT_EQ(world.job.status.workers_summary, "4/4");
  EXPECT_THAT(world.last_note("Resized"), HasSubstr("replicas 1 -> 2 from step"));
  EXPECT_EQ(world.event_count("ProgressLost"), 0);
  EXPECT_EQ(world.pods_deleted, 0);
  EXPECT_EQ(world.job.status.restarts, 0);
}

void refuse_newest(World& world, const std::string& reason) {
  world.report->body.last_switch =
      protocol::LastSwitch{world.plans.back().revision, protocol::Outcome::kRefused, 70, 0, reason};
  world.settle();
}

TEST(ScaleUp, WhereNoStateCanMoveTheCheckpointIsLoadedAndWhatIsLostIsTold) {
  World world = running(1, -1);
  world.report->body.step = 70;
  world.now += 60s;
  world.report->received = world.now;
  world.settle();
  scale(world, 2);
  world.kubelets_run();
  world.workers_register();
  world.settle();
  EXPECT_EQ(world.event_count("ProgressLost"), 0);
  refuse_newest(world, "state Move: the generation is broken");

  ASSERT_EQ(world.job.status.plan.revision, 3);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kResize);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kCheckpoint);
  world.coordinator_applies();
  world.settle();
  EXPECT_THAT(world.last_note("ProgressLost"), HasSubstr("70 completed steps"));
}

TEST(ScaleUp, WithoutRoomTheOldSizeGoesOnAndSaysSo) {
  World world = running(1);
  scale(world, 2);
  world.steps(30, 10);
  EXPECT_NE(world.condition("Degraded").reason, "ReducedReplicas") << "not in time yet";
  world.steps(31, 10);  // 610 s: scheduling.timeoutSeconds is 600

  EXPECT_EQ(world.condition("Degraded").status, "True");
  EXPECT_EQ(world.condition("Degraded").reason, "ReducedReplicas");
  EXPECT_THAT(world.condition("Degraded").message,
              AllOf(HasSubstr("1 of 2 replicas train"), HasSubstr("2 pods have no node")));
  EXPECT_EQ(world.condition("Ready").status, "True");
  EXPECT_EQ(world.pods.size(), 4U) << "they wait for a node";
  EXPECT_EQ(world.job.status.scheduling_timeouts, 0);
  EXPECT_EQ(world.job.status.restarts, 0);

  world.kubelets_run();
  world.workers_register();
  world.settle();
  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.job.status.data_parallel, 2);
  EXPECT_EQ(world.condition("Degraded").reason, "AsPlanned");
}

TEST(ScaleUp, AFailureOfANewPodCostsTheOthersNothing) {
  World world = running(1);
  world.job.spec.restart_scope = "Job";
  scale(world, 2);
  world.kubelets_run();
  world.fail("job-gpu-3", 2);  // wrong options: of this pod alone
  world.settle();
  EXPECT_EQ(world.pods.size(), 4U) << "made again after a while";
  world.now += 11s;
  world.report->received = world.now;
  world.settle();

  EXPECT_EQ(world.pods.back().meta.name, "job-gpu-3-1");
  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.condition("Failed").status, "Unknown");
  EXPECT_EQ(world.condition("Ready").status, "True");
  EXPECT_EQ(world.pods_deleted, 0);

  world.kubelets_run();
  world.workers_register();
  world.settle();
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kResize);
}

TEST(ScaleUp, ALeaderThatRemembersNothingGoesOn) {
  World world = running(1);
  scale(world, 2);
  world.adaptation = {};
  world.template_check.reset();
  world.settle();

  EXPECT_EQ(world.pods.size(), 4U);
  EXPECT_EQ(world.pods_deleted, 0);
  EXPECT_EQ(world.job.status.worker_groups[0].desired, 4);
}

TEST(ScaleUp, TakenBackBeforeItHappenedDeletesTheNewPodsOnly) {
  World world = running(1);
  scale(world, 2);
  world.kubelets_run();
  world.settle();
  scale(world, 1);

  EXPECT_EQ(world.pods.size(), 2U);
  EXPECT_EQ(world.pods.back().meta.name, "job-gpu-1");
  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(ScaleUp, ARefusedPlanLeavesTheOldSizeAndIsNotRepeated) {
  World world = running(1);
  scale(world, 2);
  world.kubelets_run();
  world.workers_register();
  world.settle();
  ASSERT_EQ(world.job.status.plan.revision, 2);
  refuse_newest(world, "rank 3: no memory");
  refuse_newest(world, "rank 3: no memory");
  world.steps(3, 1);

  EXPECT_EQ(world.job.status.plan.revision, 3) << "once from live replicas, once from the disk";
  EXPECT_EQ(world.job.status.data_parallel, 1);
  EXPECT_EQ(world.condition("Ready").status, "True");
  EXPECT_EQ(world.condition("Degraded").reason, "ReducedReplicas");
  EXPECT_THAT(world.condition("Degraded").message, HasSubstr("no memory"));
}

TEST(ScaleDown, ThePlanComesFirstThenTheHighestIndicesGo) {
  World world = running(2);
  scale(world, 1);

  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kResize);
  EXPECT_EQ(world.plan()->micro_batches, std::vector<int>{16});
  EXPECT_EQ(pods_of(*world.plan()), (std::set<std::string>{"job-gpu-0", "job-gpu-1"}));
  EXPECT_EQ(world.pods.size(), 4U) << "the old plan still runs";
  EXPECT_EQ(world.job.status.data_parallel, 2);

  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.pods.size(), 2U);
  EXPECT_EQ(world.pods[0].meta.name, "job-gpu-0");
  EXPECT_EQ(world.pods[1].meta.name, "job-gpu-1");
  EXPECT_EQ(world.job.status.data_parallel, 1);
  EXPECT_EQ(world.job.status.workers_summary, "2/2");
  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_THAT(world.last_note("Resized"), HasSubstr("replicas 2 -> 1"));
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(ScaleDown, AWorkerThatWouldGoAnywayIsNotMadeAgain) {
  World world = running(2);
  world.fail("job-gpu-3", 1);
  world.job.spec.data_parallel = 1;
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 0);
  ASSERT_EQ(world.plan()->replica_count(), 1);
  EXPECT_EQ(pods_of(*world.plan()), (std::set<std::string>{"job-gpu-0", "job-gpu-1"}));
}

TEST(ScaleDown, OfSuspendedJobsMakesNoPodTooMany) {
  World world = running(2);
  world.job.spec.suspend = true;
  world.settle();
  world.job.spec.data_parallel = 1;
  world.job.spec.suspend = false;
  world.pods_created = 100;
  world.run();

  EXPECT_EQ(world.pods_created, 102);
  EXPECT_EQ(world.plan()->replica_count(), 1);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Resize, ASizeThatDoesNotDivideTheBatchChangesNothing) {
  World world = running(2);
  scale(world, 3);

  EXPECT_EQ(world.condition("Accepted").reason, "InvalidSpec");
  EXPECT_THAT(world.condition("Accepted").message,
              HasSubstr("parallelism.dataParallel: 3 x batch.microBatchSize 4 does not divide"));
  EXPECT_EQ(world.pods.size(), 4U);
  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.condition("Ready").status, "True");
}

TEST(Resize, TheGangObjectHasTheNewSize) {
  World world = two_stages(1);
  world.job.spec.scheduler_name = "volcano";
  world.run();
  EXPECT_THAT(world.gang.object, HasSubstr(R"("minMember":2)"));
  scale(world, 2);

  EXPECT_THAT(world.gang.object, HasSubstr(R"("minMember":4)"));
}

TEST(Resize, OfAPodGroupOfKueueIsRefusedWhileItRuns) {
  World world = two_stages(1);
  world.job.meta.labels["kueue.x-k8s.io/queue-name"] = "q";
  world.run();
  scale(world, 2);

  EXPECT_EQ(world.condition("Accepted").reason, "InvalidSpec");
  EXPECT_THAT(world.condition("Accepted").message, HasSubstr("set suspend to true"));
  EXPECT_EQ(world.pods.size(), 2U);
  EXPECT_EQ(world.condition("Ready").status, "True");

  world.job.spec.suspend = true;
  world.settle();
  world.job.spec.suspend = false;
  world.run();
  EXPECT_EQ(world.condition("Accepted").status, "True");
  EXPECT_EQ(world.plan()->replica_count(), 2);
}

TEST(Resize, AnEditOfTheScheduleKeepsTheShares) {
  World world = running(2);
  world.job.spec.schedule.k_initial = 2;
  world.job.spec.schedule.k_mode = "Fixed";
  world.settle();

  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kManual);
  EXPECT_EQ(world.plan()->micro_batches, (std::vector<int>{8, 8}));
  EXPECT_EQ(world.plan()->schedule.k, 2);
  EXPECT_TRUE(schedule::same_generation(world.plans[0], world.plans[1]));
}

}  // namespace resize_test
}  // namespace weir::reconcile::test
