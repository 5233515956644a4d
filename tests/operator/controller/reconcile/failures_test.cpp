// SPDX-License-Identifier: Apache-2.0
// What failures of workers do to a job: rules, exit codes, episodes, budget, back-off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace {

using ::testing::HasSubstr;

World running(const std::function<void(api::JobSpec&)>& edit = {}) {
  World world;
  if (edit) edit(world.job.spec);
  world.run();
  world.steps(3, 1.2);
  return world;
}

void disrupt(api::Pod& pod) {
  pod.conditions.push_back({"DisruptionTarget", "True", "EvictionByEvictionAPI", "", std::nullopt});
}

TEST(Failures, ACrashedWorkerIsReplacedOnceAndTheJobRestarts) {
  World world = running();
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
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kCheckpoint);
  EXPECT_EQ(world.event_count("ProgressLost"), 1);
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Failures, FailuresOfOneEpisodeCountOnce) {
  World world = running();
  world.fail("job-gpu-2", 137);
  world.settle();
  world.now += 5s;
  world.fail("job-gpu-1", 80);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pods.size(), 6U);
}

TEST(Failures, ADeletedPodDoesNotUseTheBudget) {
  World world = running();
  std::erase_if(world.pods, [](const auto& p) { return p.meta.name == "job-gpu-3"; });
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_EQ(world.pods.size(), 4U);
}

TEST(Failures, ADrainedWorkerDoesNotUseTheBudget) {
  World world = running();
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
  World world = running([](api::JobSpec& spec) { spec.max_restarts = 1; });
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

TEST(Failures, TheTableOfExitCodesDecides) {
  const struct {
    int exit_code;
    const char* termination;
    const char* reason;
    int budget;
    std::size_t avoided;
  } cases[] = {{1, "Error", "Crashed", 1, 0},           {81, "Error", "OutOfMemory", 1, 0},
               {137, "OOMKilled", "OutOfMemory", 1, 0}, {82, "Error", "DeviceFault", 1, 1},
               {83, "Error", "IoError", 1, 0},          {143, "Error", "Terminated", 0, 0},
               {139, "Error", "Crashed", 1, 0}};
  for (const auto& c : cases) {
    World world = running();
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

TEST(Failures, ADisruptionDoesNotEatTheBudgetWhateverItsExitCode) {
  World world = running([](api::JobSpec& spec) { spec.max_restarts = 0; });
  disrupt(world.pod("job-gpu-1"));
  world.fail("job-gpu-1", 137);
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "Disrupted");
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_NE(world.condition("Failed").status, "True");
}

TEST(Failures, TheFirstRuleThatMatchesDecides) {
  World world = running([](api::JobSpec& spec) {
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
  disrupt(world.pod("job-gpu-2"));
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
  World world = running();
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
  World world = running([](api::JobSpec& spec) { spec.max_restarts = 100; });
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

TEST(Failures, CodeEightyWaitsForTheFailureOfItsPeer) {
  World world = running();
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

TEST(Failures, CodeEightyAloneIsAFailureAfterTheEpisode) {
  World world = running();
  world.fail("job-gpu-1", 80);
  world.settle();
  world.now += 31s;
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "PeerLost");
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
}

TEST(Failures, AfterTheEpisodeAFailureCountsAgain) {
  World world = running();
  world.fail("job-gpu-1", 1);
  world.settle();
  world.now += 31s;
  world.fail("job-gpu-2", 1);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 2);
}

TEST(Failures, AKubeletWhoseClockIsAheadCountsOnce) {
  World world = running();
  world.fail("job-gpu-1", 1);
  world.pod("job-gpu-1").ended = world.now + 300s;
  world.settle();
  world.now += 60s;
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pods.size(), 5U);
}

TEST(Failures, APodThatIsBeingDeletedSlowlyIsOneFailure) {
  World world = running();
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

TEST(Failures, AnHourOfProgressGivesTheBudgetBack) {
  World world = running();
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

TEST(Failures, WithoutAStepBetweenTheDelayDoubles) {
  World world = running();
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

TEST(Failures, OutOfMemoryLowersTheCapsOfThatStageAndTheSecondTimeFailsTheJob) {
  World world = running([](api::JobSpec& spec) { spec.schedule.k_initial = 2; });
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
  World world = running();
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
  World world = running([](api::JobSpec& spec) { spec.restart_scope = "Job"; });
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
  World world = running();
  world.fail("job-gpu-1", 1);
  world.run();

  EXPECT_EQ(world.pods_created, 5);
  EXPECT_EQ(world.pods_deleted, 0);
}

TEST(Failures, ALostNodeIsAFailureAfterAMinuteAndItsPodIsLetGo) {
  World world = running();
  world.nodes.emplace_back();
  world.nodes[0].meta.name = world.pod("job-gpu-1").node;
  world.nodes[0].ready = false;
  world.nodes[0].not_ready_since = world.now;
  world.steps(5, 10);
  EXPECT_EQ(world.job.status.restarts, 0);
  world.steps(2, 10);

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "NodeLost");
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  EXPECT_EQ(world.pods_created, 5);
  EXPECT_EQ(world.pods_deleted, 1);
}

TEST(Failures, AWorkerIsSilentOnlyWithTwoWitnesses) {
  World world = running();
  auto& pod = world.pod("job-gpu-1");
  pod.ready = false;
  pod.conditions.push_back({"Ready", "False", "ContainersNotReady", "", world.now});
  world.report->body.members.push_back(
      {.pod = "job-gpu-1", .pod_uid = pod.meta.uid, .ready = true});
  world.steps(12, 10);
  EXPECT_EQ(world.job.status.restarts, 0) << "the coordinator hears it";

  world.report->body.members.back().ready = false;
  world.steps(1, 10);

  EXPECT_EQ(world.job.status.last_restart_reason, "WorkerSilent");
}

TEST(Failures, ANewLeaderWaitsBeforeItJudgesSilence) {
  World world = running();
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

TEST(Failures, AWorkerThatEndsWellTooEarlyIsAFailure) {
  World world = running();
  world.fail("job-gpu-1", 0);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 0);
  world.steps(1, 62);
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "EndedEarly");
  EXPECT_EQ(world.pods_created, 5);
}

TEST(Failures, AKeptCheckpointIsNoLostProgress) {
  World world = running();
  world.last_checkpoint = 2;
  world.fail("job-gpu-1", 1);
  world.run();

  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.event_count("ProgressLost"), 0);
}

}  // namespace
}  // namespace weir::reconcile::test
