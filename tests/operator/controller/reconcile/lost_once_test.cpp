// SPDX-License-Identifier: Apache-2.0
// A loss that shows in two ways is one restart.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace lost_once_test {

using ::testing::HasSubstr;

constexpr auto kSpare = "job-gpu-s0";

// Two workers and a spare, whose kubelets start containers again.
World two_and_a_spare() {
  World world = two_stages(1);
  world.job.spec.worker_groups[0].spares = 1;
  world.nodes.emplace_back();
  world.nodes.back().meta.name = "new";
  world.nodes.back().kubelet_minor = 35;
  world.run();
  world.steps(3, 1.2);
  return world;
}

// The kubelet tells that the coordinator has crashed and its container is started again.
void show_crash(World& world, Time time) {
  api::Pod& pod = world.pod("job-gpu-0");
  pod.last_end = api::ContainerEnd{"trainer", 137, "Error", "",
                                   std::chrono::floor<std::chrono::seconds>(time)};
  pod.container_restarts = 1;
  world.settle();
}

World crashed_coordinator() {
  World world = two_and_a_spare();
  show_crash(world, world.now);
  EXPECT_EQ(world.job.status.restarts, 1);
  return world;
}

// Its process does not join for so long, and the other worker claims that it is lost.
void is_unheard(World& world, std::chrono::seconds time) {
  world.now += time;
  world.claims.push_back({world.pod("job-gpu-1").meta.uid, 1, world.now});
  world.settle();
}

TEST(LostOnce, ACoordinatorThatCrashesAndJoinsTooLateForTheOthers) {
  World world = crashed_coordinator();
  is_unheard(world, 7s);

  ASSERT_TRUE(world.job.status.coordinator);
  EXPECT_EQ(world.job.status.coordinator->pod, "job-gpu-1");
  EXPECT_THAT(world.last_note("SpareUsed"), HasSubstr(kSpare));
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
  ASSERT_EQ(world.job.status.restart_reasons.size(), 1U);
  EXPECT_EQ(world.job.status.restart_reasons[0].reason, "Crashed");
}

TEST(LostOnce, OneThatHasTrainedSinceItsCrashIsLostAgain) {
  World world = crashed_coordinator();
  world.now += 5s;
  world.report->body.last_switch->incarnation = 1;
  world.report->received = world.now;
  world.settle();
  ASSERT_TRUE(world.job.status.recovery.last);
  is_unheard(world, 7s);
  EXPECT_EQ(world.job.status.restarts, 2);
  EXPECT_EQ(world.job.status.last_restart_reason, "WorkerSilent");
}

TEST(LostOnce, AnEpisodeLater) {
  World world = crashed_coordinator();
  is_unheard(world, 40s);
  EXPECT_EQ(world.job.status.restarts, 2);
}

// The report of a coordinator may come before the status of its pod.
TEST(LostOnce, AnEndThatShowsAfterItsRecovery) {
  World world = two_and_a_spare();
  world.fail("job-gpu-1", 1);
  world.settle();
  world.coordinator_applies();
  world.now += 2s;
  world.settle();
  ASSERT_EQ(world.job.status.restarts, 1);
  ASSERT_EQ(world.job.status.plan.applied_revision, 2);

  world.now += 10s;
  const Time crash = world.now;
  world.now += 2s;
  world.report->received = world.now;
  world.report->body.last_switch->incarnation = 1;
  world.settle();
  ASSERT_GT(world.job.status.recovery.last->time, crash);
  show_crash(world, crash);
  EXPECT_EQ(world.job.status.restarts, 2);
}

}  // namespace lost_once_test
}  // namespace weir::reconcile::test
