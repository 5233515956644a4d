// SPDX-License-Identifier: Apache-2.0
// Replicas train on without one that lacks a worker: what the job's status and events say of it,
// and what the operator leaves alone meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace cover_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 2 stages in 2 replicas, at step 70, without checkpoints.
World training() {
  World world = two_stages(2);
  world.job.spec.scheduling_timeout_seconds = 120;
  world.run();
  world.reaches(70);
  return world;
}

// The coordinator says so.
void cover(World& world) {
  auto& report = world.report->body;
  report.last_switch->outcome = protocol::Outcome::kApplied;
  report.last_switch->incarnation = 1;
  report.last_switch->step = 71;
  report.last_switch->pause_seconds = 0.13;
  report.lost_replicas = {1};
  report.step = 75;
  world.report->received = world.now;
  world.settle();
}

void reports(World& world) {
  world.report->body.step += 10;
  world.report->received = world.now;
  world.settle();
}

TEST(Covered, AJobStaysReadyAndSaysWhoIsMissing) {
  World world = training();
  world.fail("job-gpu-3", 137);
  world.settle();
  cover(world);

  EXPECT_EQ(world.condition("Ready").status, "True");
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.condition("Degraded").status, "True");
  EXPECT_EQ(world.condition("Degraded").reason, "ReducedReplicas");
  EXPECT_THAT(world.condition("Degraded").message, HasSubstr("1 of 2 replicas train"));
  EXPECT_EQ(world.condition("WorkersReady").status, "False");
  EXPECT_EQ(world.condition("Recoverable").status, "False") << "each stage is held once";
  EXPECT_THAT(world.job.status.recovery.lost_replicas, ElementsAre(1));
  EXPECT_EQ(world.last_note("ReplicasReduced"),
            "1 of 2 replicas train on without replica 1 (job-gpu-2, job-gpu-3), which lacks a "
            "worker: they compute its micro-batches from step 71 on, pause 0.13 s");
  EXPECT_EQ(world.event_count("ReducedReplicas"), 0) << "told once";
  EXPECT_EQ(world.event_count("Recovered"), 0);
  EXPECT_EQ(world.job.status.restarts, 1);
}

TEST(Covered, AWorkerThatIsBackInItsPodRestoresThem) {
  World world = training();
  cover(world);
  auto& last = *world.report->body.last_switch;
  last.incarnation = 2;
  last.step = 90;
  last.state = schedule::StateMove::kMove;
  world.report->body.lost_replicas.clear();
  reports(world);

  EXPECT_THAT(world.job.status.recovery.lost_replicas, IsEmpty());
  EXPECT_EQ(world.last_note("ReplicasRestored"), "2 of 2 replicas train from step 90 on");
  EXPECT_EQ(world.event_count("Recovered"), 1);
  EXPECT_EQ(world.job.status.recovery.last->lost_steps, 0);
  EXPECT_EQ(world.condition("Degraded").status, "False");
  EXPECT_EQ(world.condition("Recoverable").status, "True");
}

TEST(Covered, APodThatFindsNoNodeStopsNobody) {
  World world = training();
  world.fail("job-gpu-3", 137);
  world.settle();
  cover(world);
  const int deleted = world.pods_deleted;
  for (int minute = 0; minute < 60; ++minute) {
    world.now += 60s;
    reports(world);
  }
  EXPECT_EQ(world.pods_deleted, deleted);
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.condition("Ready").status, "True");
  EXPECT_EQ(world.job.status.scheduling_timeouts, 0);

  // It comes at last.
  world.kubelets_run();
  world.settle();
  world.workers_register();
  world.settle();
  ASSERT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kRecover);
  EXPECT_EQ(world.condition("Ready").status, "True") << "until the boundary";
  world.report->body.lost_replicas.clear();
  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.event_count("ReplicasRestored"), 1);
  EXPECT_EQ(world.event_count("Recovered"), 1);
}

TEST(Covered, AWorkerThatDoesNotRegisterStopsNobody) {
  World world = training();
  world.fail("job-gpu-3", 137);
  world.settle();
  cover(world);
  world.kubelets_run();
  world.settle();
  for (int minute = 0; minute < 120; ++minute) {
    world.now += 60s;
    reports(world);
  }
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.condition("Ready").status, "True");
}

TEST(Covered, SilenceOrAStallIsNoTraining) {
  for (const bool stall : {false, true}) {
    World world = training();
    world.fail("job-gpu-3", 137);
    world.settle();
    cover(world);
    world.now += 60s;  // no scheduling timeout yet
    if (stall) {
      world.report->received = world.now;
      world.report->body.stall = protocol::Stall{40, 1, {{1, 1}}};
    }
    world.settle();
    EXPECT_EQ(world.condition("Ready").status, "False");
    EXPECT_EQ(world.condition("Ready").reason, "Restarting");
  }
}

// The pod of the lost worker finds no node for hours, or does not register; then rank 1 hangs. Long
// before, the deadlines of the missing worker are over.
TEST(Covered, ARankThatHangsIsNamedAndEndsWithTheDeadlineOfProgress) {
  for (const bool has_node : {false, true}) {
    World world = training();
    world.fail("job-gpu-3", 137);
    world.settle();
    cover(world);
    if (has_node) world.kubelets_run();
    for (int minute = 0; minute < 60; ++minute) {
      world.now += 60s;
      reports(world);
    }
    const int deleted = world.pods_deleted;
    const auto stands_for = [&](std::chrono::seconds time) {
      world.now += time;
      world.report->received = world.now;
      world.report->body.stall = protocol::Stall{40, 1, {{0, 1, "backward", 7, 31}}};
      world.settle();
    };
    stands_for(40s);
    EXPECT_EQ(world.condition("Ready").reason, "Stalled") << has_node;
    EXPECT_THAT(world.condition("Ready").message,
                HasSubstr("1 rank waits for rank 1 (replica 0, stage 1, n2), in backward"));
    EXPECT_EQ(world.event_count("Stalled"), 1);
    for (int minute = 0; minute < 29; ++minute) stands_for(60s);
    EXPECT_EQ(world.pods_deleted, deleted) << "nothing of what the others hold is given up";
    EXPECT_EQ(world.job.status.restarts, 1);

    stands_for(60s);
    EXPECT_EQ(world.job.status.restarts, 2) << has_node;
    EXPECT_EQ(world.job.status.last_restart_reason, "NoProgress");
    EXPECT_THAT(world.last_note("Restarting"), HasSubstr("1 rank waits for rank 1 (replica 0"));
    EXPECT_GT(world.pods_deleted, deleted);
  }
}

// With all workers there, two replicas: the workers cover it themselves, which is cheaper.
TEST(Covered, ARankThatHangsWhileAnotherReplicaIsThereGivesTheWorkersTimeToGoOn) {
  World world = training();
  const auto stands_for = [&](std::chrono::seconds time) {
    world.now += time;
    world.report->received = world.now;
    world.report->body.stall = protocol::Stall{40, 3, {{1, 1}}};
    world.settle();
  };
  for (int minute = 0; minute < 32; ++minute) stands_for(60s);
  EXPECT_EQ(world.job.status.restarts, 0);
  stands_for(120s);
  EXPECT_EQ(world.job.status.last_restart_reason, "NoProgress");
}

// A stall is no hang where another place is open, too: the deadlines of missing workers hold, but
// from the last step on.
TEST(Covered, AnotherLossIsNoHangAndDeadlinesCountFromTheLastStep) {
  for (const bool has_node : {false, true}) {
    World world = training();
    world.job.spec.startup_timeout_seconds = 120;
    world.fail("job-gpu-3", 137);
    world.settle();
    cover(world);
    if (has_node) world.kubelets_run();
    for (int minute = 0; minute < 60; ++minute) {
      world.now += 60s;
      reports(world);
    }
    const int restarts = world.job.status.restarts;
    world.report->body.stall = protocol::Stall{30, 1, {{0, 1}}};  // in place, from now on
    std::erase_if(world.members->body.members,
                  [](const protocol::Member& member) { return member.pod == "job-gpu-1"; });
    world.now += 110s;
    world.report->received = world.now;
    world.settle();
    EXPECT_EQ(world.condition("Ready").reason, "Restarting") << has_node;
    EXPECT_EQ(world.event_count("SchedulingTimedOut"), 0);
    EXPECT_EQ(world.job.status.restarts, restarts);
    world.now += 11s;
    world.report->received = world.now;
    world.settle();
    EXPECT_EQ(world.event_count("SchedulingTimedOut"), has_node ? 0 : 1);
    EXPECT_EQ(world.job.status.restarts, restarts + (has_node ? 1 : 0));
  }
}

TEST(Covered, ReplicasThatAverageAreToldToo) {
  World world = training();
  world.report->body.lost_replicas = {0, 7};
  reports(world);
  EXPECT_THAT(world.job.status.recovery.lost_replicas, ElementsAre(0)) << "7 is none of the plan";
}

}  // namespace cover_test
}  // namespace weir::reconcile::test
