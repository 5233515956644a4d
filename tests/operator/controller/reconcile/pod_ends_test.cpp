// SPDX-License-Identifier: Apache-2.0
// Pods end in many ways: each failure is counted once, for the right cause, and the worker is made
// again; a job that has finished is not trained again.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace pod_ends_test {

using ::testing::HasSubstr;

// A job of one worker whose pod is there and has not run yet.
World beginning(int max_restarts = 6) {
  World world;
  world.job.spec.worker_groups[0].count = 1;
  world.job.spec.stages = 1;
  world.job.spec.max_restarts = max_restarts;
  world.settle();
  return world;
}

api::Pod& newest(World& world) {
  return world.pods.back();
}

// How a kubelet leaves a pod behind without the time of its end.
struct Untimed {
  const char* what;
  std::function<void(api::Pod&)> end;
  const char* cause;
  int budget;  // used by each
  const char* text;
};

std::vector<Untimed> untimed_ends() {
  return {
      {"init container",
       [](api::Pod& pod) {
         pod.containers_seen = true;
         pod.failed_init = api::ContainerEnd{"fetch", 3, "Error", "no such bucket", std::nullopt};
       },
       "Crashed", 1, "init container fetch: exit code 3: no such bucket"},
      {"no device",
       [](api::Pod& pod) {
         pod.reason = "UnexpectedAdmissionError";
         pod.message = "Allocate failed due to no healthy devices";
       },
       "Rejected", 0,
       "rejected by the kubelet, UnexpectedAdmissionError: Allocate failed due to no healthy "
       "devices"},
      {"no room", [](api::Pod& pod) { pod.reason = "OutOfcpu"; }, "Rejected", 0,
       "rejected by the kubelet, OutOfcpu"},
      {"evicted at once",
       [](api::Pod& pod) {
         pod.reason = "Evicted";
         pod.message = "The node had condition: [DiskPressure]. ";
       },
       "Rejected", 0, "rejected by the kubelet, Evicted: The node had condition: [DiskPressure]."},
      {"over its own limit",
       [](api::Pod& pod) {
         pod.containers_seen = true;
         pod.reason = "Evicted";
         pod.message = "Usage of EmptyDir volume \"ck\" exceeds the limit \"1Mi\". ";
         pod.exit_code = 143;
       },
       "LimitExceeded", 1,
       "Evicted: Usage of EmptyDir volume \"ck\" exceeds the limit \"1Mi\". (exit code 143)"},
      {"evicted for the node",
       [](api::Pod& pod) {
         pod.containers_seen = true;
         pod.reason = "Evicted";
         pod.exit_code = 137;
         pod.conditions.push_back({"DisruptionTarget", "True", "TerminationByKubelet", "", {}});
       },
       "Disrupted", 0, "exit code 137, disrupted"},
      {"reboot",
       [](api::Pod& pod) {
         pod.containers_seen = true;
         pod.exit_code = 137;
         pod.termination_reason = "ContainerStatusUnknown";
       },
       "NodeLost", 0, "exit code 137 (ContainerStatusUnknown)"},
      {"nothing is known", [](api::Pod&) {}, "Crashed", 1, "failed"}};
}

TEST(PodEnds, AFailureWithoutATimeIsCountedOnceAndItsSuccessorComes) {
  for (const Untimed& untimed : untimed_ends()) {
    SCOPED_TRACE(untimed.what);
    World world = beginning();
    for (int failure = 1; failure <= 5; ++failure) {  // the back-off grows beyond one episode
      api::Pod& pod = newest(world);
      const std::string pod_name = pod.meta.name;
      pod.node = "n" + std::to_string(failure);
      pod.phase = "Failed";
      untimed.end(pod);
      for (int tick = 0; tick < 20; ++tick) {  // ten minutes, the longest back-off
        world.settle();
        world.now += 30s;
      }
      EXPECT_EQ(world.job.status.restarts, failure);
      EXPECT_EQ(world.job.status.restart_budget_used, failure * untimed.budget);
      EXPECT_EQ(world.job.status.last_restart_reason, untimed.cause);
      EXPECT_EQ(world.last_note("WorkerLost"), "pod " + pod_name + ": " + untimed.text);
      ASSERT_EQ(world.pods_created, failure + 1) << "no successor";
    }
  }
}

TEST(PodEnds, TheBudgetEndsAJobAfterAsManyPodsAsItAllows) {
  World world = beginning(2);
  for (int i = 0; i < 100; ++i) {
    api::Pod& pod = newest(world);
    pod.phase = "Failed";
    pod.failed_init = api::ContainerEnd{"fetch", 3, "Error", "no such bucket", std::nullopt};
    world.settle();
    world.now += 20s;
  }

  EXPECT_EQ(world.pods_created, 3);
  EXPECT_EQ(world.condition("Failed").reason, "RestartLimitExceeded");
  EXPECT_THAT(world.condition("Failed").message,
              HasSubstr("init container fetch: exit code 3: no such bucket"));
}

TEST(PodEnds, AKubeletThatRejectsAPodIsAvoided) {
  World world = beginning();
  newest(world).node = "n4";
  newest(world).phase = "Failed";
  newest(world).reason = "OutOfcpu";
  world.settle();
  world.now += 10s;
  world.settle();

  ASSERT_EQ(world.last_created.size(), 1U);
  EXPECT_EQ(world.last_created[0].avoided_nodes, std::vector<std::string>{"n4"});
}

TEST(PodEnds, APodThatEndsLongAfterItsDeletionIsOneFailure) {
  World world = training();
  world.job.status.restart_streak = 2;  // its successor waits
  world.job.status.plan.applied_revision = 0;
  auto& pod = world.pod("job-gpu-1");
  pod.meta.deleting = world.now + 120s;
  pod.meta.deletion_grace_seconds = 120;
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 1);
  world.now += 35s;
  world.fail("job-gpu-1", 143);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
}

TEST(PodEnds, ASideContainerDoesNotKeepAJobFromCompleting) {
  World world = training();
  for (const char* pod : {"job-gpu-1", "job-gpu-2", "job-gpu-3", "job-gpu-0"})
    world.end_trainer(pod, 0);
  world.settle();

  EXPECT_EQ(world.condition("Complete").status, "True");
  EXPECT_EQ(world.job.status.restarts, 0);
  world.now += 11s;
  world.settle();
  EXPECT_EQ(world.pods_deleted, 4) << "cleanupPolicy Running: what still runs of them goes";
}

TEST(PodEnds, ASideContainerThatFailsAfterTheTrainerIsNoFailure) {
  World world = training();
  for (auto& pod : world.pods) {
    pod.phase = "Failed";
    pod.exit_code = 0;
    pod.ended = world.now;
  }
  world.settle();

  EXPECT_EQ(world.condition("Complete").status, "True");
  EXPECT_EQ(world.condition("Failed").status, "Unknown");
}

TEST(PodEnds, ASideContainerDoesNotHideAFailure) {
  World world = training();
  world.end_trainer("job-gpu-2", 1);
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "Crashed");
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pods_deleted, 1) << "its device is given back";
  EXPECT_EQ(world.pods.size(), 4U);
  world.run();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.restarts, 1);
}

TEST(PodEnds, ASideContainerDoesNotHideAWrongOption) {
  World world = beginning();
  world.kubelets_run();
  world.end_trainer("job-gpu-0", 2);
  world.pod("job-gpu-0").termination_message = "--model: unknown model gtp";
  world.settle();

  EXPECT_EQ(world.condition("Failed").reason, "ConfigurationError");
  EXPECT_EQ(world.condition("Failed").message,
            "pod job-gpu-0: exit code 2: --model: unknown model gtp");
}

TEST(PodEnds, APodWithASideContainerIsGivenBackWhileItsSuccessorWaits) {
  World world = beginning();
  world.kubelets_run();
  for (int failure = 1; failure <= 3; ++failure) {
    world.end_trainer(newest(world).meta.name, 1);
    world.settle();
    EXPECT_TRUE(world.pods.empty()) << failure;
    EXPECT_EQ(world.job.status.restarts, failure);
    world.now += 10s * (1 << (failure - 1));
    world.settle();
    ASSERT_EQ(world.pods.size(), 1U) << "after the back-off, not before";
    world.kubelets_run();
  }
}

// A job whose pods ended while no operator ran, and what is known of it.
struct Unseen {
  std::int64_t step = 0, total = 1000, checkpoint = -1;
  std::chrono::seconds away{3600};
  std::string checkpoint_path;
};

World after_unseen(const Unseen& unseen) {
  World world =
      training([&](api::JobSpec& spec) { spec.checkpoint_path = unseen.checkpoint_path; });
  world.report.reset();
  world.members.reset();
  auto& kept = world.job.report;
  kept.step = unseen.step;
  kept.total_steps = unseen.total;
  kept.samples_per_second = "64.0";  // a second for each step
  kept.last_report_time = world.now;
  if (unseen.checkpoint >= 0) kept.last_checkpoint_step = unseen.checkpoint;
  world.now += unseen.away;
  world.leading_since = world.now;
  world.adaptation = {};
  world.pods.clear();
  world.settle();
  return world;
}

TEST(Completion, AJobThatMayHaveFinishedUnseenIsNotTrainedAgain) {
  World world = after_unseen({.step = 400});

  EXPECT_EQ(world.condition("Failed").reason, "EndUnknown");
  EXPECT_THAT(world.condition("Failed").message,
              HasSubstr("3600 s after the last report (step 400 of 1000)"));
  EXPECT_EQ(world.pods_created, 4);
}

TEST(Completion, AJobThatCannotHaveFinishedUnseenGoesOn) {
  World world = after_unseen({.step = 400, .away = 60s});

  EXPECT_EQ(world.job.status.last_restart_reason, "PodDeleted");
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pods_created, 8);
}

TEST(Completion, AJobWithACheckpointFindsOutByItself) {
  World world = after_unseen({.step = 400, .checkpoint = 300, .checkpoint_path = "/ckpt"});

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pods_created, 8);
}

TEST(Completion, TheLastReportOfAllStepsIsEnough) {
  for (const auto& unseen :
       {Unseen{.step = 1000}, Unseen{.step = 1000, .checkpoint = 1000, .checkpoint_path = "/c"}}) {
    World world = after_unseen(unseen);

    EXPECT_EQ(world.condition("Complete").status, "True");
    EXPECT_EQ(world.pods_created, 4);
  }
}

TEST(Completion, WorkersThatHaveDoneTheLastStepSpeakForACoordinatorThatIsGone) {
  World world = training();
  for (const char* pod : {"job-gpu-1", "job-gpu-2", "job-gpu-3"}) world.fail(pod, 0);
  std::erase_if(world.pods, [](const auto& pod) { return pod.meta.name == "job-gpu-0"; });
  world.settle();

  EXPECT_EQ(world.condition("Complete").status, "True");
  EXPECT_EQ(world.job.status.restarts, 0);
}

TEST(Completion, PodsThatWeDeletedHaveNotFinished) {
  World world = training();
  world.job.spec.suspend = true;
  world.settle();
  world.now += 3600s;
  world.settle();
  world.job.spec.suspend = false;
  world.run();

  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(TemplateEdits, PodsThatHaveNeverStartedFollowTheEdit) {
  World world;
  world.job.spec.worker_groups[0].count = 2;
  world.job.spec.stages = 2;
  world.settle();
  world.pods[0].phase = "Running";
  world.pods[0].started = true;
  world.job.spec.worker.image = "worker:2";
  ++world.job.meta.generation;
  world.settle();

  EXPECT_EQ(world.pods_created, 3);
  ASSERT_EQ(world.pods.size(), 2U);
  EXPECT_EQ(world.pods[0].meta.name, "job-gpu-0") << "it runs: it stays as it is";
  EXPECT_EQ(world.pods[1].meta.name, "job-gpu-1-1");
  EXPECT_EQ(world.job.status.restarts, 0);
}

TEST(TemplateEdits, AnEditIsNoRestart) {
  World world = training();
  world.job.status.restart_streak = 5;
  world.job.status.plan.applied_revision = 0;
  world.fail("job-gpu-1", 1);
  world.settle();
  world.now += 600s;
  world.settle();
  ASSERT_EQ(world.pods_created, 5);
  world.job.spec.worker.image = "worker:2";  // the new pod cannot start with worker:1
  world.settle();

  EXPECT_EQ(world.pods_created, 6);
  EXPECT_EQ(world.job.status.restarts, 1);
}

// A pod that has a node and waits.
api::Pod& waiting(World& world, const char* reason, const char* message) {
  api::Pod& pod = world.pods.front();
  pod.node = "n1";
  pod.waiting_reason = reason;
  pod.waiting_message = message;
  return pod;
}

TEST(Starting, WhatAKubeletCannotFindIsToldOnceOnTheJob) {
  World world = beginning();
  waiting(world, "ErrImagePull", "not found");
  world.settle();
  world.pods.front().waiting_reason = "ImagePullBackOff";
  world.settle();

  EXPECT_EQ(world.condition("WorkersReady").reason, "PodCannotStart");
  EXPECT_EQ(world.condition("WorkersReady").message,
            "0 of 1 workers have registered; pod job-gpu-0: ImagePullBackOff: not found");
  EXPECT_EQ(world.job.status.worker_groups[0].pending_reason, "ImagePullBackOff: not found");
  EXPECT_EQ(world.event_count("PodCannotStart"), 1);
}

TEST(Starting, AVolumeThatCannotBeMountedIsToldWithinTenSeconds) {
  World world = beginning();
  waiting(world, "ContainerCreating", "");
  world.warning = "FailedMount: configmap \"tetx\" not found";
  world.settle();
  EXPECT_TRUE(world.pod_warnings.empty()) << "it may just start";

  world.now += 6s;
  world.settle();

  EXPECT_EQ(world.condition("WorkersReady").reason, "PodCannotStart");
  EXPECT_THAT(world.condition("WorkersReady").message, HasSubstr(world.warning));
  EXPECT_EQ(world.event_count("PodCannotStart"), 1);
}

TEST(Starting, APodThatOnlyTakesLongIsAskedForEverMoreSeldom) {
  World world = beginning();
  waiting(world, "ContainerCreating", "");
  int asked = 0;
  for (int second = 0; second < 1800; ++second) {
    world.now += 1s;
    const auto before = world.pod_warnings;
    world.settle();
    asked += !world.pod_warnings.empty() &&
             (before.empty() || before.begin()->second.asked != world.now) &&
             world.pod_warnings.begin()->second.asked == world.now;
  }

  EXPECT_EQ(world.condition("WorkersReady").reason, "Starting");
  EXPECT_LE(asked, 25);
  EXPECT_GE(asked, 10);
}

}  // namespace pod_ends_test
}  // namespace weir::reconcile::test
