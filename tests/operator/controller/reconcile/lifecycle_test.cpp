// SPDX-License-Identifier: Apache-2.0
// From an accepted job to its end, and what failures do to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace {

using ::testing::HasSubstr;

TEST(Lifecycle, ReachesAFixedPointFromNothing) {
  World world;

  EXPECT_GT(world.settle(10), 0);

  EXPECT_EQ(world.pods.size(), 4U);
  EXPECT_TRUE(world.service);
  EXPECT_EQ(world.control_ca, "ca");
  EXPECT_EQ(world.condition("Accepted").status, "True");
  EXPECT_EQ(world.condition("Ready").reason, "Pending");
  EXPECT_EQ(world.job.status.workers_summary, "0/4");
}

TEST(Lifecycle, MakesTheFirstPlanOnlyFromACompleteRegister) {
  World world;
  world.settle();
  world.kubelets_run();
  world.workers_register();
  world.members->body.members.pop_back();
  world.settle();
  EXPECT_TRUE(world.plans.empty());

  world.workers_register();
  world.settle();

  ASSERT_EQ(world.plans.size(), 1U);
  const auto& plan = world.plans.front();
  EXPECT_EQ(plan.revision, 1U);
  EXPECT_EQ(plan.trigger, schedule::Trigger::kInitial);
  EXPECT_EQ(plan.stage_count(), 4);
  EXPECT_EQ(plan.schedule.k, 1);
  EXPECT_EQ(plan.micro_batches, std::vector<int>{16});
  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.condition("Ready").reason, "Starting");
}

TEST(Lifecycle, RunsOnceTheCoordinatorHasAppliedThePlan) {
  World world;
  world.run();

  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.condition("Ready").status, "True");
  EXPECT_EQ(world.job.status.plan.applied_revision, 1);
  EXPECT_EQ(world.job.status.workers_summary, "4/4");
  EXPECT_EQ(world.condition("ReplanInProgress").status, "False");
}

TEST(Lifecycle, CompletesWhenTheCoordinatorEndsWithZeroAndThenOnlyCleansUp) {
  World world;
  world.run();
  world.fail("job-gpu-0", 0);
  world.settle();

  EXPECT_EQ(world.condition("Complete").status, "True");
  EXPECT_EQ(world.condition("Ready").reason, "Complete");
  EXPECT_EQ(world.pods.size(), 1U);  // cleanupPolicy Running keeps the ended pod
  for (const auto& action : world.pass()) {
    EXPECT_TRUE(std::holds_alternative<DeletePod>(action) ||
                std::holds_alternative<RequeueAfter>(action));
  }
}

TEST(Lifecycle, DeletesTheJobAfterItsTimeToLive) {
  World world;
  world.job.spec.ttl_seconds_after_finished = 60;
  world.run();
  world.fail("job-gpu-0", 0);
  world.settle();
  EXPECT_FALSE(world.job_deleted);

  world.now += 61s;
  world.settle(1);

  EXPECT_TRUE(world.job_deleted);
}

TEST(Lifecycle, ARefusedSpecMakesNoPods) {
  World world;
  world.job.spec.data_parallel = 2;

  EXPECT_GT(world.settle(), 0);

  EXPECT_TRUE(world.pods.empty());
  EXPECT_EQ(world.condition("Accepted").status, "False");
  EXPECT_EQ(world.condition("Accepted").reason, "NotImplemented");
  EXPECT_THAT(world.condition("Accepted").message, HasSubstr("dataParallel"));
  EXPECT_EQ(world.condition("Ready").reason, "Invalid");
}

TEST(Lifecycle, ATemplateThatTheServerRefusesMakesNoPods) {
  World world;
  world.template_ok = false;

  EXPECT_GT(world.settle(), 0);

  EXPECT_TRUE(world.pods.empty());
  EXPECT_EQ(world.condition("Accepted").reason, "InvalidTemplate");
}

TEST(Lifecycle, AMissingProfileConfigMapIsNamed) {
  World world;
  world.job.spec.profile.source = "ConfigMap";
  world.job.spec.profile.config_map = "p";

  EXPECT_GT(world.settle(), 0);

  EXPECT_EQ(world.condition("Accepted").reason, "ProfileMissing");
  EXPECT_EQ(world.condition("Accepted").message, "ConfigMap p not found");
}

TEST(Lifecycle, IgnoresAJobOfAnotherManager) {
  World world;
  world.job.spec.managed_by = "kueue.x-k8s.io/multikueue";

  EXPECT_TRUE(world.pass().empty());
}

TEST(Failures, ACrashedWorkerIsReplacedOnceAndTheJobRestarts) {
  World world;
  world.run();
  world.steps(3, 1.2);
  world.fail("job-gpu-2", 1);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
  EXPECT_EQ(world.pods.size(), 5U);
  EXPECT_EQ(world.condition("Ready").reason, "Restarting");
  EXPECT_THAT(world.last_note("WorkerLost"), HasSubstr("job-gpu-2: exit code 1"));

  world.run();

  ASSERT_NE(world.plan(), nullptr);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kCheckpoint);
  EXPECT_EQ(world.event_count("ProgressLost"), 1);
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Failures, FailuresOfOneEpisodeCountOnce) {
  World world;
  world.run();
  world.fail("job-gpu-2", 137);
  world.settle();
  world.now += 5s;
  world.fail("job-gpu-1", 80);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pods.size(), 6U);
}

TEST(Failures, ADeletedPodDoesNotUseTheBudget) {
  World world;
  world.run();
  std::erase_if(world.pods, [](const auto& p) { return p.meta.name == "job-gpu-3"; });
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_EQ(world.pods.size(), 4U);
}

TEST(Failures, ADrainedWorkerDoesNotUseTheBudget) {
  World world;
  world.run();
  world.fail("job-gpu-1", 143);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
}

TEST(Failures, WrongOptionsFailTheJobWithTheWorkersLastLine) {
  World world;
  world.settle();
  world.kubelets_run();
  world.fail("job-gpu-1", 2);
  world.pod("job-gpu-1").termination_message = "weir-worker: --model=gtp: unknown model\n";
  world.settle();

  EXPECT_EQ(world.condition("Failed").reason, "ConfigurationError");
  EXPECT_THAT(world.condition("Failed").message, HasSubstr("--model=gtp: unknown model"));
}

TEST(Failures, EndWhenTheBudgetIsUsedUp) {
  World world;
  world.job.spec.max_restarts = 1;
  world.run();
  world.fail("job-gpu-2", 1);
  world.run();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  world.now += 10s;
  world.fail("job-gpu-2-1", 1);
  world.settle();

  EXPECT_EQ(world.condition("Failed").reason, "RestartLimitExceeded");
  EXPECT_EQ(world.job.status.restarts, 1);
}

TEST(Failures, AWorkerThatKeepsCrashingWaitsLongerEachTime) {
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

// operator.md 12: a crash after any Action, then a start with an empty AdaptationState, ends at the
// same place.
TEST(Failures, ACrashOfTheOperatorAfterAnyActionChangesNothing) {
  for (int crash_at = 0; crash_at < 40; ++crash_at) {
    World world;
    int count = 0;
    const auto passes = [&](int most) {
      for (int i = 0; i < most; ++i) {
        for (const auto& action : world.pass()) {
          if (count++ == crash_at) {
            world.adaptation = {};
            break;
          }
          world.apply(action);
        }
      }
    };
    passes(6);
    world.kubelets_run();
    passes(3);
    world.workers_register();
    passes(4);
    world.coordinator_applies();
    passes(4);
    world.fail("job-gpu-2", 1);
    passes(4);
    world.run();

    EXPECT_EQ(world.pods.size(), 5U) << "crash after action " << crash_at;
    EXPECT_EQ(world.job.status.restarts, 1) << "crash after action " << crash_at;
    EXPECT_EQ(world.condition("Ready").reason, "Running") << "crash after action " << crash_at;
  }
}

}  // namespace
}  // namespace weir::reconcile::test
