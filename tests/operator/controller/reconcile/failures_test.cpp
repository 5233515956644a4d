// SPDX-License-Identifier: Apache-2.0
// The effect of failed workers on a job: rules, exit codes, avoided nodes, memory, lost and silent
// workers. restart_budget_test.cpp tests which of them count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace failures_test {

using ::testing::HasSubstr;

TEST(Failures, ACrashedWorkerIsReplacedOnceAndTheJobRestarts) {
  World world = training();
  world.fail("job-gpu-2", 1);
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "Crashed");
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
  EXPECT_EQ(world.pods.size(), 5U);
  EXPECT_EQ(world.condition("Ready").reason, "Restarting");
  EXPECT_THAT(world.last_note("WorkerLost"), HasSubstr("job-gpu-2: exit code 1"));

  world.run();

  ASSERT_NE(world.plan(), nullptr);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kRecover);
  EXPECT_EQ(world.event_count("ProgressLost"), 1);
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
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

TEST(Failures, TheTableOfCausesDecides) {
  for (const CauseRow& cause : kCauses) {
    if (cause.exit == protocol::Exit::kFinished) continue;
    const int exit_code = static_cast<int>(cause.exit);
    World world = training();
    world.fail("job-gpu-1", exit_code);
    world.pod("job-gpu-1").termination_message = "its last words";
    world.settle();
    world.now += 31s;  // for a lost peer, which may follow from another failure
    world.settle();

    if (cause.reaction == Reaction::kFailJob) {
      EXPECT_EQ(world.condition("Failed").reason, cause.name);
      EXPECT_EQ(world.condition("Failed").message,
                "pod job-gpu-1: exit code " + std::to_string(exit_code) + ": its last words");
      EXPECT_EQ(world.job.status.restarts, 0) << cause.name;
      continue;
    }
    const bool free = cause.reaction == Reaction::kRestartIgnoreMax ||
                      cause.reaction == Reaction::kAvoidNodeIgnoreMax;
    const bool avoids =
        cause.reaction == Reaction::kAvoidNode || cause.reaction == Reaction::kAvoidNodeIgnoreMax;
    EXPECT_EQ(world.job.status.last_restart_reason, cause.name);
    EXPECT_EQ(world.job.status.restarts, 1) << cause.name;
    EXPECT_EQ(world.job.status.restart_budget_used, free ? 0 : 1) << cause.name;
    EXPECT_EQ(world.job.status.avoided_nodes.size(), avoids ? 1U : 0U) << cause.name;
    EXPECT_NE(world.condition("Failed").status, "True") << cause.name;
  }
}

TEST(Failures, AModelThatFailsTwiceWithoutAStepEndsTheJob) {
  World world = training();
  const auto fails = [&](const std::string& pod) {
    world.now += 60s;
    world.fail(pod, 84);
    world.pod(pod).termination_message = "layer block3 (Block) failed: a shape is wrong";
    world.settle();
  };
  fails("job-gpu-1");
  world.run();
  world.steps(3, 1.2);
  fails("job-gpu-2");
  EXPECT_EQ(world.job.status.restarts, 2) << "it has trained in between";
  EXPECT_EQ(world.job.status.last_restart_reason, "ModelFailed");

  world.now += 60s;  // the restart may wait
  world.settle();
  world.kubelets_run();
  world.settle();
  fails("job-gpu-3");

  EXPECT_EQ(world.condition("Failed").reason, "ModelFailed");
  EXPECT_EQ(world.condition("Failed").message,
            "the model failed twice without a completed step in between; last: pod job-gpu-3: exit "
            "code 84: layer block3 (Block) failed: a shape is wrong");
}

TEST(Failures, WhatKubernetesTellsOfAnEndDecidesToo) {
  const struct {
    int exit_code;
    const char* termination;
    const char* reason;
    int budget;
    std::size_t avoided;
  } cases[] = {{1, "Error", "Crashed", 1, 0},
               {137, "OOMKilled", "OutOfMemory", 1, 0},
               {137, "ContainerStatusUnknown", "NodeLost", 0, 0},
               {139, "Error", "Crashed", 1, 0}};
  for (const auto& c : cases) {
    World world = training();
    world.pod("job-gpu-1").termination_reason = c.termination;
    world.fail("job-gpu-1", c.exit_code);
    world.settle();

    EXPECT_EQ(world.job.status.last_restart_reason, c.reason) << c.exit_code;
    EXPECT_EQ(world.job.status.restarts, 1) << c.exit_code;
    EXPECT_EQ(world.job.status.restart_budget_used, c.budget) << c.exit_code;
    EXPECT_EQ(world.job.status.avoided_nodes.size(), c.avoided) << c.exit_code;
    ASSERT_EQ(world.job.status.restart_reasons.size(), 1U);
    EXPECT_EQ(world.job.status.restart_reasons[0], (api::RestartCount{c.reason, 1}));
  }
}

TEST(Failures, TheFirstRuleThatMatchesDecides) {
  World world = training([](api::JobSpec& spec) {
    spec.failure_rules = {{"page", "FailJob", {42}, {}},
                          {"flaky", "RestartIgnoreMax", {1, 42}, {}},
                          {"spot", "ReplaceWorkerAvoidNode", {}, {"DisruptionTarget"}}};
  });
  world.fail("job-gpu-1", 1);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_THAT(world.last_note("Restarting"), HasSubstr("rule flaky"));

  world.run();
  world.now += 60s;
  disrupt(world.pod("job-gpu-2"), world.now);
  world.settle();
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
  EXPECT_EQ(world.job.status.avoided_nodes.size(), 1U);

  world.run();
  world.now += 60s;
  world.fail("job-gpu-3", 42);
  world.settle();
  EXPECT_EQ(world.condition("Failed").reason, "FailJobRule");
  EXPECT_THAT(world.condition("Failed").message,
              HasSubstr("rule page: pod job-gpu-3: exit code 42"));
}

TEST(Failures, NewPodsKeepAwayFromAnAvoidedNodeForAnHour) {
  World world = training();
  const std::string node = world.pod("job-gpu-1").node;
  world.fail("job-gpu-1", 82);
  world.settle();

  ASSERT_EQ(world.last_created.size(), 1U);
  EXPECT_EQ(world.last_created[0].avoided_nodes, std::vector<std::string>{node});
  EXPECT_EQ(world.event_count("NodeAvoided"), 1);
  world.run();
  world.steps(1, 3601);
  world.settle();
  EXPECT_TRUE(world.job.status.avoided_nodes.empty());
}

TEST(Failures, KeepsAtMostSixteenAvoidedNodes) {
  World world = training([](api::JobSpec& spec) { spec.max_restarts = 100; });
  for (int i = 0; i < 18; ++i) {
    world.steps(1, 40);
    api::Pod* live = nullptr;
    for (auto& pod : world.pods) {
      if (pod.phase == "Running") live = &pod;
    }
    live->node = "bad-" + std::to_string(i);
    world.fail(live->meta.name, 82);
    world.run();
  }

  EXPECT_EQ(world.job.status.avoided_nodes.size(), 16U);
  EXPECT_EQ(world.job.status.avoided_nodes.back().node, "bad-17");
}

TEST(Failures, OutOfMemoryLowersTheCapsOfThatStageAndTheSecondTimeFailsTheJob) {
  World world = training([](api::JobSpec& spec) { spec.schedule.k_initial = 2; });
  const auto before = world.plan()->schedule.caps;  // 8 6 4 2
  const auto stage =
      std::find_if(world.plan()->ranks.begin(), world.plan()->ranks.end(), [](const auto& rank) {
        return rank.pod == "job-gpu-1";
      })->stage;
  world.pod("job-gpu-1").termination_reason = "OOMKilled";
  world.fail("job-gpu-1", 137);
  world.run();
  world.steps(3, 1.2);

  const auto s = static_cast<std::size_t>(stage);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.plan()->schedule.caps[s], std::max(1, before[s] * 3 / 4));
  EXPECT_EQ(world.plan()->micro_batches, std::vector<int>{16});

  world.now += 60s;
  world.fail("job-gpu-2", 81);
  world.settle();
  EXPECT_EQ(world.condition("Failed").reason, "OutOfMemory");
  EXPECT_THAT(world.condition("Failed").message, HasSubstr("group gpu ran out of memory twice"));
}

TEST(Failures, AChangeOfPlanBetweenGivesMemoryAnotherChance) {
  World world = training();
  world.fail("job-gpu-1", 81);
  world.run();
  world.job.spec.schedule.k_initial.reset();
  world.job.spec.schedule.k_min = 2;
  world.settle();
  world.coordinator_applies();
  world.settle();
  ASSERT_EQ(world.plan()->trigger, schedule::Trigger::kManual);
  world.now += 60s;
  world.fail("job-gpu-2", 81);
  world.settle();

  EXPECT_NE(world.condition("Failed").status, "True");
  EXPECT_EQ(world.job.status.restarts, 2);
}

TEST(Failures, ScopeJobMakesAllPodsAgainOnceTheOldOnesAreGone) {
  World world = training([](api::JobSpec& spec) { spec.restart_scope = "Job"; });
  world.graceful = true;
  world.fail("job-gpu-1", 1);
  world.settle();
  EXPECT_EQ(world.pods_deleted, 3);
  EXPECT_EQ(world.pods.size(), 4U) << "nothing new while the old ones are ending";

  world.kubelets_end();
  world.run();

  EXPECT_EQ(world.pods_created, 8);
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
}

TEST(Failures, ScopeWorkerKeepsTheSurvivors) {
  World world = training();
  world.fail("job-gpu-1", 1);
  world.run();

  EXPECT_EQ(world.pods_created, 5);
  EXPECT_EQ(world.pods_deleted, 0);
}

TEST(Failures, ALostNodeIsAFailureAfterAMinuteAndItsPodIsLetGo) {
  World world = training();
  world.lose_node(world.pod("job-gpu-1").node);
  world.steps(5, 10);
  EXPECT_EQ(world.job.status.restarts, 0);
  world.steps(2, 10);

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "NodeLost");
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_EQ(world.pods_created, 5);
  EXPECT_EQ(world.pods_deleted, 1);
}

api::Pod& not_ready(World& world, const std::string& name) {
  auto& pod = world.pod(name);
  pod.ready = false;
  pod.conditions.push_back({"Ready", "False", "ContainersNotReady", "", world.now});
  return pod;
}

TEST(Failures, AWorkerIsSilentOnlyWithTwoWitnesses) {
  World world = training();
  auto& pod = not_ready(world, "job-gpu-1");
  world.report->body.members.push_back(
      {.pod = "job-gpu-1", .pod_uid = pod.meta.uid, .ready = true});
  world.steps(12, 10);
  EXPECT_EQ(world.job.status.restarts, 0) << "the coordinator hears it";

  world.report->body.members.back().ready = false;
  world.steps(1, 10);

  EXPECT_EQ(world.job.status.last_restart_reason, "WorkerSilent");
}

TEST(Failures, ANewLeaderWaitsBeforeItJudgesSilence) {
  World world = training();
  auto& pod = world.pod("job-gpu-1");
  pod.conditions.push_back({"Ready", "False", "ContainersNotReady", "", world.now - 200s});
  world.leading_since = world.now;
  world.report.reset();
  world.members.reset();
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 0);
  world.now += 61s;
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
}

TEST(Failures, WhatRestsOnSilenceWaitsUntilTheCacheHasHeardAll) {
  World world = training();
  world.fail("job-gpu-1", 0);
  world.settle();
  world.cached_pods = world.pods;  // the watch stands still
  for (const auto& pod : {"job-gpu-0", "job-gpu-2", "job-gpu-3"}) world.fail(pod, 0);
  world.now += 62s;
  world.settle();
  EXPECT_EQ(world.pod_lists, 1);
  EXPECT_EQ(world.job.status.restarts, 0);
  world.cached_pods.reset();
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.condition("Complete").status, "True");
  EXPECT_EQ(world.pods_created, 4);
}

// Their ends belong, by their time, to the failure of a moment ago, for which the job has
// restarted.
TEST(Failures, WorkersThatEndSoonAfterARestartAreNotMadeAgainUnheard) {
  World world = training();
  world.fail("job-gpu-1", 1);
  world.settle();
  world.kubelets_run();
  world.workers_register();
  world.settle();
  world.coordinator_applies();
  world.settle();
  ASSERT_EQ(world.pods_created, 5);
  world.fail("job-gpu-2", 0);
  world.settle();
  world.cached_pods = world.pods;
  for (const auto& pod : {"job-gpu-0", "job-gpu-1-1", "job-gpu-3"}) world.fail(pod, 0);
  world.now += 62s;
  world.settle();
  EXPECT_EQ(world.pods_created, 5);
  world.cached_pods.reset();
  world.settle();

  EXPECT_EQ(world.condition("Complete").status, "True");
  EXPECT_EQ(world.pods_created, 5);
}

TEST(Failures, AWorkerThatWasSilentOnlyInTheCacheGoesOn) {
  World world = training();
  auto& pod = not_ready(world, "job-gpu-1");
  world.cached_pods = world.pods;
  pod.ready = true;
  pod.conditions.clear();
  world.now += 200s;
  world.settle();
  EXPECT_EQ(world.pod_lists, 1);
  world.cached_pods.reset();
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 0);
}

TEST(Failures, WithoutAListOfThePodsNothingIsDecidedBySilence) {
  World world = training();
  world.fail("job-gpu-1", 0);
  world.refuses = [](const Request& request) {
    return std::holds_alternative<ConfirmPods>(request) ? "pods is forbidden" : "";
  };
  world.now += 62s;
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 0);
  world.refuses = nullptr;
  world.now += 31s;
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "EndedEarly");
}

TEST(Failures, AWorkerThatEndsWellTooEarlyIsAFailure) {
  World world = training();
  world.fail("job-gpu-1", 0);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 0);
  world.steps(1, 62);
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "EndedEarly");
  EXPECT_EQ(world.pods_created, 5);
}

// The former coordinator's report is gone, and the new one says step 0.
void another_coordinator_reports(World& world) {
  world.settle();
  world.kubelets_run();
  world.now += 60s;
  world.report->body = {};
  world.report->received = world.now;
  world.settle();
}

TEST(Failures, ALostCoordinatorTellsWhatWasLost) {
  World world = training();
  world.fail("job-gpu-0", 137);
  another_coordinator_reports(world);
  EXPECT_EQ(world.job.report.step, 3);
  world.workers_register();
  world.settle();
  world.now += 60s;
  world.report->received = world.now;
  world.settle();
  EXPECT_EQ(world.job.report.step, 3) << "the new plan is not applied";
  EXPECT_EQ(world.event_count("ProgressLost"), 0);
  world.coordinator_applies();
  world.settle();

  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.event_count("ProgressLost"), 1);
  EXPECT_THAT(world.last_note("ProgressLost"), HasSubstr("3 completed steps"));
}

TEST(Failures, WithoutAnyReportTheStepOfThePlanIsWhatWasLost) {
  World world = training();
  world.job.status.plan.applied_step = 40;
  world.job.report = {};
  world.report.reset();
  world.fail("job-gpu-0", 137);
  world.settle();
  world.now += 60s;  // it is not known to have stepped: the new pod comes after 10 s
  world.run();

  EXPECT_EQ(world.event_count("ProgressLost"), 1);
  EXPECT_THAT(world.last_note("ProgressLost"), HasSubstr("40 completed steps"));
}

TEST(Failures, WhatIsLostIsToldOnce) {
  World world = training();
  world.fail("job-gpu-0", 137);
  another_coordinator_reports(world);
  world.workers_register();
  world.settle();
  world.now += 60s;
  world.fail("job-gpu-1", 137);
  another_coordinator_reports(world);  // the new pod comes 10 s after the restart
  world.kubelets_run();
  world.workers_register();
  world.settle();
  world.coordinator_applies();
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 2);
  EXPECT_EQ(world.plan()->revision, 3U);
  EXPECT_EQ(world.event_count("ProgressLost"), 1);
}

// sync.mode Partial: the replicas that are left train on, and who was lost joins them.
TEST(Failures, WhoJoinsARunThatGoesOnLosesNothing) {
  World world = training();
  world.fail("job-gpu-1", 137);
  world.settle();
  world.now += 60s;
  world.settle();
  world.kubelets_run();
  world.workers_register();
  world.settle();
  ASSERT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  world.report->body.step = 9;
  world.report->body.last_switch =
      protocol::LastSwitch{world.plans.back().revision, protocol::Outcome::kApplied, 9, 0, ""};
  world.settle();

  EXPECT_EQ(world.job.status.plan.applied_step, 9);
  EXPECT_EQ(world.event_count("ProgressLost"), 0);
}

TEST(Failures, AKeptCheckpointIsNoLostProgress) {
  World world = training();
  world.last_checkpoint = 2;
  world.fail("job-gpu-1", 1);
  world.run();

  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.event_count("ProgressLost"), 0);
}

}  // namespace failures_test
}  // namespace weir::reconcile::test
