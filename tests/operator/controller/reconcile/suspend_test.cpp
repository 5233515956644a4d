// SPDX-License-Identifier: Apache-2.0
// Suspend and resume, and the gang's object around them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace {

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
  world.now += 3s;  // progress is told every 15 s
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
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kCheckpoint);
  EXPECT_EQ(world.event_count("ProgressLost"), 0);
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

TEST(Gang, TheProviderStaysForTheJobsLife) {
  World world;
  world.run();
  world.job.meta.labels["kueue.x-k8s.io/queue-name"] = "q";
  world.settle();

  EXPECT_EQ(world.job.status.gang_provider, "None");
}

}  // namespace
}  // namespace weir::reconcile::test
