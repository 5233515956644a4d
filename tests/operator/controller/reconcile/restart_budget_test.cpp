// SPDX-License-Identifier: Apache-2.0
// Which failures count as one, which use the restart budget, and how long the next start waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace restart_budget_test {

TEST(Episodes, FailuresOfOneEpisodeCountOnce) {
  World world = training();
  world.fail("job-gpu-2", 137);
  world.settle();
  world.now += 5s;
  world.fail("job-gpu-1", 80);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pods.size(), 6U);
}

TEST(Episodes, CodeEightyWaitsForTheFailureOfItsPeer) {
  World world = training();
  world.fail("job-gpu-1", 80);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.pods.size(), 4U);

  world.now += 10s;
  world.fail("job-gpu-2", 82);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "DeviceFault");
  EXPECT_EQ(world.pods.size(), 6U);
}

TEST(Episodes, CodeEightyAloneIsAFailureAfterTheEpisode) {
  World world = training();
  world.fail("job-gpu-1", 80);
  world.settle();
  world.now += 31s;
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "PeerLost");
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
}

TEST(Episodes, AfterTheEpisodeAFailureCountsAgain) {
  World world = training();
  world.fail("job-gpu-1", 1);
  world.settle();
  world.now += 31s;
  world.fail("job-gpu-2", 1);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 2);
}

TEST(Episodes, AKubeletWhoseClockIsAheadCountsOnce) {
  World world = training();
  world.fail("job-gpu-1", 1);
  world.pod("job-gpu-1").ended = world.now + 300s;
  world.settle();
  world.now += 60s;
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pods.size(), 5U);
}

TEST(Episodes, APodThatIsBeingDeletedSlowlyIsOneFailure) {
  World world = training();
  world.pod("job-gpu-1").meta.deleting = world.now + 120s;
  world.pod("job-gpu-1").meta.deletion_grace_seconds = 120;
  world.settle();
  world.now += 60s;
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "PodDeleted");
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_EQ(world.pods.size(), 5U);
}

TEST(RestartBudget, ADeletedPodDoesNotUseTheBudget) {
  World world = training();
  std::erase_if(world.pods, [](const auto& p) { return p.meta.name == "job-gpu-3"; });
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_EQ(world.pods.size(), 4U);
}

TEST(RestartBudget, EndsTheJobWhenItIsUsedUp) {
  World world = training([](api::JobSpec& spec) { spec.max_restarts = 1; });
  world.fail("job-gpu-2", 1);
  world.run();
  world.steps(1, 1.2);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  world.now += 10s;
  world.fail("job-gpu-2-1", 1);
  world.settle();

  EXPECT_EQ(world.condition("Failed").reason, "RestartLimitExceeded");
  EXPECT_EQ(world.job.status.restarts, 1);
}

TEST(RestartBudget, AWorkerThatKeepsCrashingWaitsLongerEachTime) {
  World world;
  world.settle();
  world.kubelets_run();
  world.now += 2s;
  world.fail("job-gpu-1", 1);
  world.settle();
  EXPECT_EQ(world.pods.size(), 4U);  // 10 s from the recorded restart

  world.now += 11s;
  world.settle();

  EXPECT_EQ(world.pods.size(), 5U);
}

TEST(RestartBudget, ADisruptionDoesNotEatTheBudgetWhateverItsExitCode) {
  World world = training([](api::JobSpec& spec) { spec.max_restarts = 0; });
  disrupt(world.pod("job-gpu-1"), world.now);
  world.fail("job-gpu-1", 137);
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "Disrupted");
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_NE(world.condition("Failed").status, "True");
}

void crash_and_join_again(World& world, const std::string& worker) {
  const auto pod = std::ranges::find_if(world.pods, [&](const auto& each) {
    return each.phase == "Running" && each.meta.name.starts_with(worker);
  });
  ASSERT_NE(pod, world.pods.end()) << worker;
  world.fail(pod->meta.name, 1);
  world.settle();
  world.now += 31s;  // the next one is another episode
  world.run();
}

World one_restart(int replicas) {
  World world = two_stages(replicas);
  world.job.spec.max_restarts = 1;
  world.run();
  world.steps(20, 1.2);
  return world;
}

TEST(RestartBudget, LossesThatTheOtherReplicaMakesGoodDoNotUseIt) {
  World world = one_restart(2);
  ASSERT_EQ(world.condition("Recoverable").status, "True");
  for (int loss = 1; loss <= 4; ++loss) {
    crash_and_join_again(world, "job-gpu-1");
    world.steps(10, 1.2);
    EXPECT_EQ(world.job.status.restarts, loss);
    EXPECT_EQ(world.job.status.restart_budget_used, 0);
  }
  EXPECT_THAT(world.last_note("Restarting"),
              testing::HasSubstr("restart 4 (Crashed, budget used 0 of 1)"));
}

TEST(RestartBudget, TheNextLossOfTheSameWorkerWithinTenStepsUsesIt) {
  World world = one_restart(2);
  crash_and_join_again(world, "job-gpu-1");
  world.steps(5, 1.2);
  crash_and_join_again(world, "job-gpu-2");
  EXPECT_EQ(world.job.status.restart_budget_used, 0) << "another worker";
  world.steps(4, 1.2);
  crash_and_join_again(world, "job-gpu-1");
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
  world.steps(9, 1.2);
  EXPECT_EQ(world.job.status.recovery.losses.size(), 2U);
  crash_and_join_again(world, "job-gpu-1");
  EXPECT_EQ(world.condition("Failed").reason, "RestartLimitExceeded");
}

TEST(RestartBudget, ALossThatCostsStepsUsesIt) {
  World world = one_restart(1);
  ASSERT_EQ(world.condition("Recoverable").status, "False");
  crash_and_join_again(world, "job-gpu-1");
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
}

// Condition Recoverable became False in the second of the loss, and was never True.
TEST(RestartBudget, ALossInTheFirstSecondOfTrainingUsesIt) {
  World world = two_stages(1);
  world.job.spec.max_restarts = 1;
  world.run();
  world.steps(1, 0.1);
  ASSERT_EQ(world.condition("Recoverable").status, "False");
  ASSERT_EQ(world.condition("Recoverable").since,
            std::chrono::floor<std::chrono::seconds>(world.now));
  world.fail("job-gpu-1", 1);
  world.settle();
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
}

// The coordinator reports the loss before the kubelet tells that the worker has ended.
TEST(RestartBudget, ALossThatTheReportToldFirstWasRecoverable) {
  World world = one_restart(2);
  world.fail("job-gpu-1", 1);
  const api::Pod ended = world.pod("job-gpu-1");
  world.pod("job-gpu-1").phase = "Running";
  world.pod("job-gpu-1").ended.reset();
  world.pod("job-gpu-1").exit_code.reset();
  world.now += 1s;
  world.report->body.lost_replicas = {0};
  world.report->received = world.now;
  world.settle();
  ASSERT_EQ(world.condition("Recoverable").status, "False");
  world.pod("job-gpu-1") = ended;
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 0);

  world.now += 60s;
  world.fail("job-gpu-3", 1);
  world.settle();
  EXPECT_EQ(world.job.status.restart_budget_used, 1) << "nobody holds what this one had";
}

TEST(RestartBudget, AnHourOfProgressGivesTheBudgetBack) {
  World world = training();
  world.fail("job-gpu-1", 1);
  world.run();
  world.steps(1, 10);
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
  world.steps(1, 3500);
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
  world.steps(1, 200);

  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_EQ(world.job.status.restarts, 1);
}

TEST(RestartBudget, WithoutAStepBetweenTheDelayDoubles) {
  World world = training();
  world.fail("job-gpu-1", 1);
  world.settle();
  EXPECT_EQ(world.pods.size(), 5U) << "the job had stepped: no delay";
  for (const auto delay : {10s, 20s, 40s}) {
    world.kubelets_run();
    world.now += 40s;
    const std::size_t before = world.pods.size();
    world.fail(world.pods.back().meta.name, 1);
    world.settle();
    world.now += delay - 1s;
    world.settle();
    EXPECT_EQ(world.pods.size(), before);
    world.now += 2s;
    world.settle();
    EXPECT_EQ(world.pods.size(), before + 1);
  }
}

}  // namespace restart_budget_test
}  // namespace weir::reconcile::test
