// SPDX-License-Identifier: Apache-2.0
// Suspend and resume, and the gang's object around them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace suspend_test {

using ::testing::HasSubstr;

World running() {
  World world;
  world.job.spec.checkpoint_path = "/ckpt";
  world.run();
  world.steps(3, 1.2);
  return world;
}

TEST(Suspend, RecordsThenDeletesThePodsWithTheirGraceAndCountsNoRestart) {
  World world = running();
  world.graceful = true;
  world.job.spec.suspend = true;
  world.settle();
  EXPECT_EQ(world.condition("Suspended").reason, "Suspending");
  EXPECT_EQ(world.condition("Suspended").status, "False");
  EXPECT_EQ(world.condition("Ready").reason, "Suspended");
  EXPECT_EQ(world.pods_deleted, 4);

  world.report->body.last_checkpoint_step = 3;
  for (auto& pod : world.pods) world.fail(pod.meta.name, 143);
  world.settle();

  EXPECT_EQ(world.condition("Suspended").status, "True");
  EXPECT_THAT(world.condition("Suspended").message, HasSubstr("the checkpoint has step 3"));
  EXPECT_EQ(world.event_count("Suspended"), 1);
  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.pods_created, 4);
  EXPECT_EQ(world.job.status.workers_summary, "0/4");
}

TEST(Suspend, TheLastStepIsToldAtOnce) {
  World world = running();
  world.graceful = true;
  world.job.spec.suspend = true;
  world.settle();
  world.now += 3s;  // progress is written every 15 s
  world.report->body.step = 7;
  world.report->body.last_checkpoint_step = 7;
  for (auto& pod : world.pods) world.fail(pod.meta.name, 143);
  world.settle();

  EXPECT_EQ(world.condition("Suspended").status, "True");
  EXPECT_EQ(world.job.report.step, 7);
  EXPECT_EQ(world.job.report.last_checkpoint_step, 7);
}

TEST(Suspend, ResumesFromTheCheckpointWithoutCountingARestart) {
  World world = running();
  world.job.spec.suspend = true;
  world.settle();
  world.now += 600s;
  world.last_checkpoint = 3;
  world.job.spec.suspend = false;
  world.run();

  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.condition("Suspended").reason, "Resumed");
  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.job.status.suspended_seconds, 600);
  EXPECT_EQ(world.pods_created, 8);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kRecover);
  EXPECT_EQ(world.event_count("ProgressLost"), 0);
  EXPECT_EQ(world.event_count("Recovered"), 0) << "nothing was lost";
  EXPECT_EQ(world.event_count("Resumed"), 1);
}

TEST(Suspend, OnceBegunGoesToItsEnd) {
  World world = running();
  world.graceful = true;
  world.job.spec.suspend = true;
  world.settle();
  world.job.spec.suspend = false;
  world.settle();
  EXPECT_EQ(world.pods.size(), 4U);
  EXPECT_EQ(world.condition("Suspended").reason, "Suspending");

  world.kubelets_end();
  world.run();

  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.restarts, 0);
}

TEST(Suspend, AJobCreatedSuspendedMakesNoPods) {
  World world;
  world.job.spec.suspend = true;
  EXPECT_GT(world.settle(), 0);

  EXPECT_EQ(world.pods_created, 0);
  EXPECT_EQ(world.condition("Suspended").status, "True");
  EXPECT_EQ(world.condition("Accepted").status, "True");
  EXPECT_EQ(world.condition("Ready").reason, "Suspended");
}

TEST(Suspend, GroupsMayChangeMeanwhile) {
  World world = running();
  world.job.spec.suspend = true;
  world.settle();
  world.job.spec.worker_groups[0].count = 2;
  world.job.spec.stages = 2;
  world.settle();
  world.job.spec.suspend = false;
  world.run();

  EXPECT_EQ(world.pods.size(), 2U);
  EXPECT_EQ(world.plan()->stage_count(), 2);
  EXPECT_EQ(world.job.status.workers_summary, "2/2");
  EXPECT_EQ(world.job.status.restarts, 0);
}

TEST(Suspend, DoesNotHoldUpAJobThatHasJustFinished) {
  World world = running();
  world.job.spec.suspend = true;
  world.fail("job-gpu-0", 0);
  world.settle();

  EXPECT_EQ(world.condition("Complete").status, "True");
}

TEST(Gang, TheVolcanoGroupGoesWithThePodsAndComesAgain) {
  World world;
  world.job.spec.scheduler_name = "volcano";
  world.run();
  EXPECT_EQ(world.job.status.gang_provider, "Volcano");
  EXPECT_THAT(world.gang.object, HasSubstr("\"minMember\":4"));
  EXPECT_EQ(world.last_created.front().scheduler_name, "volcano");
  world.job.spec.suspend = true;
  world.settle();
  EXPECT_EQ(world.gang.object, "");
  world.gang = {};  // another leader
  world.settle();
  EXPECT_TRUE(world.gang.known);

  world.job.spec.suspend = false;
  world.run();
  EXPECT_THAT(world.gang.object, HasSubstr("PodGroup"));
  world.fail("job-gpu-0", 0);
  world.settle();
  EXPECT_EQ(world.gang.object, "");
}

TEST(Gang, AVolcanoGroupThatSomebodyDeletesIsMadeAgain) {
  World world;
  world.job.spec.scheduler_name = "volcano";
  world.run();
  world.gang.watched = true;  // and nothing is seen

  const auto requests = world.pass().requests;

  ASSERT_FALSE(requests.empty());
  EXPECT_TRUE(std::holds_alternative<ApplyGangObject>(requests.front()));
}

World with_kueue() {
  World world;
  world.graceful = true;
  world.job.meta.labels["kueue.x-k8s.io/queue-name"] = "q";
  world.run();
  return world;
}

std::string group_of(const api::Pod& pod) {
  return pod.meta.labels.at("kueue.x-k8s.io/pod-group-name");
}

// Kueue deletes all pods of the group it evicts; it counts those that still end, and would delete
// new ones beside them.
TEST(Gang, AfterAnEvictionByKueueNewPodsWaitForTheOldOnesToEnd) {
  World world = with_kueue();
  for (auto& pod : world.pods) {
    pod.meta.deleting = world.now + 120s;
    pod.meta.deletion_grace_seconds = 120;
  }
  world.settle();
  EXPECT_EQ(world.pods_created, 4);
  EXPECT_EQ(world.condition("Ready").reason, "Restarting");
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  const Time evicted = world.now;
  world.now += 45s;  // the delay of a restart is over
  world.settle();
  EXPECT_EQ(world.pods_created, 4);
  for (auto& pod : world.pods) {  // their objects stay
    pod.phase = "Failed";
    pod.ended = evicted;
  }
  world.settle();

  EXPECT_EQ(world.pods_created, 8);
  EXPECT_EQ(group_of(world.pods.back()), "job") << "they take the places of those before";
}

TEST(Gang, ASilentWorkerOfAKueueGroupIsDeletedBeforeItIsMadeAgain) {
  World world = with_kueue();
  auto& pod = world.pod("job-gpu-2");
  pod.ready = false;
  pod.conditions.push_back({"Ready", "False", "", "", world.now});
  world.report->body.members.clear();
  world.now += 100s;
  world.report->received = world.now;
  world.settle();
  EXPECT_EQ(world.pods_created, 4);
  EXPECT_TRUE(world.pod("job-gpu-2").meta.deleting.has_value());
  world.kubelets_end();
  world.now += 11s;
  world.report->received = world.now;
  world.settle();

  EXPECT_EQ(world.pods_created, 5);
}

TEST(Gang, ASuspendedJobGivesUpItsKueueGroupAndTakesANewOne) {
  World world = with_kueue();
  world.job.spec.suspend = true;
  world.settle();
  EXPECT_EQ(world.pods.front().meta.annotations.at("kueue.x-k8s.io/retriable-in-group"), "false");
  for (auto& pod : world.pods) pod.phase = "Failed";
  world.settle();
  EXPECT_EQ(world.condition("Suspended").status, "True");
  world.job.spec.suspend = false;
  world.settle();

  EXPECT_EQ(world.pods_created, 8);
  EXPECT_EQ(group_of(world.pods.back()), "job.1");
}

// The pods of a closed group go one by one, and the one with the mark may go first.
TEST(Gang, PodsLeftOfAClosedKueueGroupDoNotOpenItAgain) {
  World world = with_kueue();
  world.job.spec.suspend = true;
  world.settle();
  for (auto& pod : world.pods) pod.phase = "Failed";
  world.settle();
  world.pods.erase(world.pods.begin());
  world.job.spec.suspend = false;
  world.settle();
  ASSERT_EQ(world.pods_created, 8);
  EXPECT_EQ(group_of(world.pods.back()), "job.1");

  world.run();
  world.fail(world.pods.back().meta.name, 1);
  world.now += 45s;
  world.settle();
  ASSERT_EQ(world.pods_created, 9);
  EXPECT_EQ(group_of(world.pods.back()), "job.1") << "a restart stays in the group of the resume";
}

TEST(Gang, AJobThatHasEndedOrIsDeletedGivesUpItsKueueGroup) {
  World failed = with_kueue();
  failed.fail("job-gpu-1", 2);  // wrong options
  failed.settle();
  EXPECT_EQ(failed.condition("Failed").status, "True");
  EXPECT_EQ(failed.pods.front().meta.annotations.at("kueue.x-k8s.io/retriable-in-group"), "false");

  World gone = with_kueue();
  gone.job.meta.deleting = gone.now;
  const auto requests = gone.pass().requests;
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<ClosePodGroup>(requests.front()));
}

TEST(Gang, TheProviderStaysForTheJobsLife) {
  World world;
  world.run();
  world.job.meta.labels["kueue.x-k8s.io/queue-name"] = "q";
  world.settle();

  EXPECT_EQ(world.job.status.gang_provider, "None");
}

}  // namespace suspend_test
}  // namespace weir::reconcile::test
