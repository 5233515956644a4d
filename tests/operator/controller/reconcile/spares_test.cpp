// SPDX-License-Identifier: Apache-2.0
// workerGroups[].spares: pods that wait for the place of a lost worker.
#include <algorithm>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace spares_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr auto kSpare = "job-gpu-s0";

std::vector<std::string> ranks_of(const schedule::Plan& plan) {
  std::vector<std::string> pods;
  for (const auto& rank : plan.ranks) pods.push_back(rank.pod);
  return pods;
}

// Two workers and a spare; it has not begun.
World two_and_a_spare(const std::function<void(api::JobSpec&)>& edit = nullptr) {
  World world;
  world.job.spec.worker_groups[0].count = 2;
  world.job.spec.worker_groups[0].spares = 1;
  world.job.spec.stages = 2;
  if (edit) edit(world.job.spec);
  return world;
}

World with_spare(const std::function<void(api::JobSpec&)>& edit = nullptr) {
  World world = two_and_a_spare(edit);
  world.run();
  world.steps(3, 1.2);
  return world;
}

// The plan for the loss of a worker is in force.
World with_used_spare() {
  World world = with_spare();
  world.fail("job-gpu-1", 137);
  world.settle();
  world.coordinator_applies();
  world.settle();
  return world;
}

void new_pods_register(World& world) {
  world.kubelets_run();
  world.settle();
  world.workers_register();
  world.settle();
}

void let_time_pass(World& world, int seconds) {
  for (int i = 0; i < seconds; i += 10) {
    world.now += 10s;
    world.report->received = world.now;
    world.report->body.step += 5;
    world.settle();
  }
}

TEST(Spares, AreMadeAfterTheWorkersUnderIndicesOfTheirOwn) {
  World world = two_and_a_spare([](api::JobSpec& spec) {
    spec.worker_groups[0].spares = 2;
    api::WorkerGroup second = spec.worker_groups[0];
    second.name = "other";
    second.spares = 1;
    spec.worker_groups.push_back(second);
  });
  world.settle();
  EXPECT_EQ(world.pods_created, 4) << "a spare must not have the room of a worker";
  world.kubelets_run();
  world.settle();

  std::map<std::string, int> indices;
  for (const auto& input : world.last_created) {
    indices[api::pod_name("job", input.group, input.index_in_group, 0)] = input.worker_index;
    EXPECT_EQ(input.workers, 4) << "spares are not counted";
  }
  EXPECT_EQ(indices, (std::map<std::string, int>{
                         {"job-gpu-s0", 8192}, {"job-gpu-s1", 8193}, {"job-other-s0", 8192 + 16}}));
}

TEST(Spares, AJobDoesNotWaitForThem) {
  World world = two_and_a_spare();
  world.settle();
  world.kubelets_run();
  world.settle();
  const std::string no_room = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.";
  auto& spare = world.pod(kSpare);
  spare.gates = {"room"};  // no kubelet runs it
  spare.conditions.push_back({"PodScheduled", "False", "Unschedulable", no_room, world.now});
  world.run();
  world.steps(3, 1.2);

  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.condition("PodsScheduled").status, "True");
  EXPECT_EQ(world.condition("WorkersReady").reason, "AllReady");
  EXPECT_EQ(world.job.status.workers_summary, "2/2");
  EXPECT_EQ(world.job.status.recovery.spares, "0/1");
  EXPECT_EQ(world.job.status.worker_groups[0].desired, 2);
  EXPECT_EQ(world.job.status.worker_groups[0].pending_reason, "spare job-gpu-s0: " + no_room);
  let_time_pass(world, 2000);  // beyond scheduling.timeoutSeconds and startupTimeoutSeconds
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.pods_deleted, 0);
  EXPECT_EQ(world.job.status.plan.revision, 1);
}

TEST(Spares, NoPlanCountsOnThem) {
  World world = with_spare([](api::JobSpec& spec) { spec.stages.reset(); });

  EXPECT_EQ(world.job.status.recovery.spares, "1/1");
  EXPECT_THAT(ranks_of(*world.plan()), ::testing::Not(::testing::Contains(kSpare)));
  EXPECT_THAT(world.plan()->idle, IsEmpty());
  EXPECT_EQ(world.event_count("IdleWorkers"), 0);
}

TEST(Spares, TakeThePlaceOfALostWorkerAtOnce) {
  World world = with_spare();
  world.fail("job-gpu-1", 137);
  world.settle();

  ASSERT_EQ(world.job.status.plan.revision, 2) << "before a new pod has come";
  EXPECT_THAT(ranks_of(*world.plan()), UnorderedElementsAre("job-gpu-0", kSpare));
  EXPECT_THAT(world.plan()->idle, IsEmpty());
  EXPECT_EQ(world.last_note("SpareUsed"), "job-gpu-s0 takes stage 1 of job-gpu-1");
  EXPECT_EQ(world.job.status.restarts, 1);
  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.workers_summary, "2/2");
  EXPECT_EQ(world.job.status.recovery.spares, "0/1");
}

// Its machine is gone, and nothing else says so for a minute or two.
TEST(Spares, TakeThePlaceOfASilentWorkerAtOnce) {
  for (const bool spare_is_silent : {false, true}) {
    World world = with_spare();
    auto& members = world.report->body.members;
    members.clear();
    for (const char* pod : {"job-gpu-0", "job-gpu-1", kSpare}) {
      members.push_back({.pod = pod, .pod_uid = world.pod(pod).meta.uid, .ready = true});
    }
    members[1].ready = false;
    members[1].silent_seconds = 5.2;
    if (spare_is_silent) members[2].silent_seconds = 5.2;
    world.report->received = world.now;
    world.settle();

    EXPECT_EQ(world.event_count("SpareUsed"), spare_is_silent ? 0 : 1);
    EXPECT_EQ(world.job.status.restarts, spare_is_silent ? 0 : 1);
    if (spare_is_silent) continue;
    EXPECT_EQ(world.job.status.last_restart_reason, "WorkerSilent");
    EXPECT_THAT(ranks_of(*world.plan()), UnorderedElementsAre("job-gpu-0", kSpare));
    world.coordinator_applies();
    world.settle();
    EXPECT_EQ(world.condition("Ready").reason, "Running");
  }
}

TEST(Spares, NoneTakesThePlaceOfTheCoordinatorOrOfAnOldReport) {
  for (const bool old : {false, true}) {
    World world = with_spare();
    world.report->body.members = {{.pod = "job-gpu-0",
                                   .pod_uid = world.pod(old ? "job-gpu-1" : "job-gpu-0").meta.uid,
                                   .silent_seconds = 60}};
    world.report->received = world.now;
    if (old) world.now += 31s;
    world.settle();
    EXPECT_EQ(world.event_count("SpareUsed"), 0);
    EXPECT_EQ(world.job.status.restarts, 0);
  }
}

TEST(Spares, ThePodOfTheLostWorkerIsTheSpareThen) {
  World world = with_used_spare();
  let_time_pass(world, 2000);  // nobody waits for it
  EXPECT_EQ(world.job.status.restarts, 1);
  new_pods_register(world);
  EXPECT_EQ(world.job.status.recovery.spares, "1/1");
  EXPECT_EQ(world.job.status.plan.revision, 2);

  world.fail("job-gpu-1-1", 137);
  let_time_pass(world, 30);
  EXPECT_EQ(world.job.status.restarts, 1) << "the end of a spare is no restart";
  new_pods_register(world);

  world.fail(kSpare, 137);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 2) << "it has a stage";
  EXPECT_EQ(world.job.status.plan.revision, 3);
  EXPECT_THAT(ranks_of(*world.plan()), UnorderedElementsAre("job-gpu-0", "job-gpu-1-2"));
  EXPECT_EQ(world.pod("job-gpu-s0-1").phase, "Pending");
}

TEST(Spares, OneThatHasAStageIsNeeded) {
  World world = with_used_spare();
  let_time_pass(world, 60);  // another episode
  world.fail(kSpare, 137);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 2);
  EXPECT_EQ(world.condition("Ready").reason, "Restarting") << "no other worker is there";
  EXPECT_EQ(world.job.status.plan.revision, 2);
  new_pods_register(world);
  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.job.status.plan.revision, 3);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

// Ends of the trainer, which its kubelet starts again in the pod, after 10 s from the second on.
void end_twice_in_place(World& world, const std::string& name) {
  api::Pod& pod = world.pod(name);
  pod.last_end = api::ContainerEnd{"trainer", 137, "Error", "", world.now};
  pod.container_restarts = 1;
  world.settle();
  let_time_pass(world, 60);
  pod.exit_code = 137;
  pod.ended = world.now;
  pod.ready = false;
  world.settle();
}

// A spare that comes while the kubelet waits: the end has been counted.
TEST(Spares, ThatComeLaterCountNothingTwice) {
  World world = two_and_a_spare();
  world.nodes.emplace_back();
  world.nodes.back().meta.name = "new";
  world.nodes.back().kubelet_minor = 35;
  world.job.spec.worker_groups[0].spares = 0;
  world.run();
  world.steps(3, 1.2);
  end_twice_in_place(world, "job-gpu-1");
  world.job.spec.worker_groups[0].spares = 1;
  world.settle();
  new_pods_register(world);
  EXPECT_THAT(ranks_of(*world.plan()), UnorderedElementsAre("job-gpu-0", kSpare));
  EXPECT_EQ(world.job.status.restarts, 2);
  EXPECT_EQ(world.job.status.restart_budget_used, 2);
}

TEST(Spares, GoFirstWhereAKubeletWaitsBeforeItRestartsATrainer) {
  World world = two_and_a_spare();
  world.nodes.emplace_back();
  world.nodes.back().meta.name = "new";
  world.nodes.back().kubelet_minor = 35;
  World none = world;
  world.run();
  world.steps(3, 1.2);
  end_twice_in_place(world, "job-gpu-1");
  EXPECT_EQ(world.job.status.restarts, 2);
  EXPECT_THAT(ranks_of(*world.plan()), UnorderedElementsAre("job-gpu-0", kSpare));
  EXPECT_EQ(world.pod("job-gpu-1-1").phase, "Pending");
  EXPECT_EQ(world.event_count("WorkerLost"), 2);

  none.job.spec.worker_groups[0].spares = 0;
  none.run();
  none.steps(3, 1.2);
  end_twice_in_place(none, "job-gpu-1");
  EXPECT_EQ(none.job.status.restarts, 2);
  EXPECT_EQ(none.pods_created, 2) << "nobody is quicker than its kubelet";
}

TEST(Spares, AreMadeAgainAfterADelayWithoutARestart) {
  World world = with_spare();
  world.fail(kSpare, 2);
  world.settle();
  EXPECT_EQ(world.job.status.recovery.spares, "0/1");
  EXPECT_THAT(world.job.status.worker_groups[0].pending_reason,
              AllOf(HasSubstr("spare job-gpu-s0: "), HasSubstr("exit code 2")));
  const int made = world.pods_created;
  world.now += 9s;
  world.settle();
  EXPECT_EQ(world.pods_created, made);
  let_time_pass(world, 10);
  EXPECT_EQ(world.pod("job-gpu-s0-1").phase, "Pending");
  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Spares, TheDrainedNodeOfAWorkerIsNoPlaceForItsStage) {
  World world = with_spare([](api::JobSpec& spec) { spec.worker_groups[0].spares = 2; });
  for (const char* pod : {"job-gpu-1", "job-gpu-s0"}) world.pod(pod).node = "drained";
  world.workers_register();
  api::Node drained;
  drained.meta.name = "drained";
  drained.schedulable = false;
  world.nodes = {drained};
  auto& lost = world.pod("job-gpu-1");
  disrupt(lost, world.now);
  lost.meta.deletion_grace_seconds = 30;
  lost.meta.deleting = world.now + 30s;
  world.settle();
  EXPECT_THAT(ranks_of(*world.plan()), UnorderedElementsAre("job-gpu-0", "job-gpu-s1"));

  World away = with_spare();
  for (const char* pod : {"job-gpu-1", "job-gpu-s0"}) away.pod(pod).node = "gone";
  away.workers_register();
  away.lose_node("gone");
  away.fail("job-gpu-1", 137);
  away.settle();
  EXPECT_EQ(away.job.status.plan.revision, 1) << "the spare is not there either";
}

// No link to the node of the pod carries what it usually does.
void slow_links(World& world, const std::string& pod) {
  const std::string slow = world.pod(pod).node, other = world.pod("job-gpu-0").node;
  world.adaptation.memory.history.links = {{slow, other, 1e6, 1e9, world.now},
                                           {other, slow, 1e6, 1e9, world.now},
                                           {other, "elsewhere", 1e9, 1e9, world.now},
                                           {"elsewhere", other, 1e9, 1e9, world.now}};
}

TEST(Spares, OnANodeWithSlowLinksIsBetterThanNone) {
  World world = with_spare();
  slow_links(world, kSpare);
  world.fail("job-gpu-1", 137);
  world.settle();
  EXPECT_THAT(ranks_of(*world.plan()), UnorderedElementsAre("job-gpu-0", kSpare));

  World two = with_spare([](api::JobSpec& spec) { spec.worker_groups[0].spares = 2; });
  slow_links(two, kSpare);
  two.fail("job-gpu-1", 137);
  two.settle();
  EXPECT_THAT(ranks_of(*two.plan()), UnorderedElementsAre("job-gpu-0", "job-gpu-s1"));

  World idle = two_and_a_spare([](api::JobSpec& spec) {
    spec.worker_groups[0].count = 3;
    spec.worker_groups[0].spares = 0;
  });
  idle.run();
  idle.steps(3, 1.2);
  ASSERT_THAT(idle.plan()->idle, ElementsAre("job-gpu-2"));
  slow_links(idle, "job-gpu-2");
  idle.fail("job-gpu-1", 137);
  idle.settle();
  EXPECT_EQ(idle.job.status.plan.revision, 1) << "it may be idle for that reason";
}

TEST(Spares, GoWhenFewerAreWanted) {
  World world = with_spare();
  world.job.spec.worker_groups[0].spares = 0;
  world.settle();
  EXPECT_EQ(world.pods_deleted, 1);
  EXPECT_EQ(world.job.status.recovery.spares, "");
  EXPECT_EQ(world.job.status.restarts, 0);
  world.job.spec.worker_groups[0].spares = 2;
  world.settle();
  new_pods_register(world);
  EXPECT_EQ(world.job.status.recovery.spares, "2/2") << "an edit adds them to a running job";

  World used = with_used_spare();
  const int deleted = used.pods_deleted;
  used.job.spec.worker_groups[0].spares = 0;
  used.settle();
  EXPECT_EQ(used.pods_deleted, deleted) << "it has a stage";
  EXPECT_EQ(used.condition("Ready").reason, "Running");
}

TEST(Spares, AResizeKeepsTheOnesInUse) {
  World world = with_used_spare();
  new_pods_register(world);
  world.job.spec.data_parallel = 2;
  world.settle();
  new_pods_register(world);
  world.coordinator_applies();
  world.settle();
  ASSERT_EQ(world.plan()->trigger, schedule::Trigger::kResize);
  EXPECT_THAT(ranks_of(*world.plan()),
              UnorderedElementsAre("job-gpu-0", kSpare, "job-gpu-2", "job-gpu-3"));
  EXPECT_EQ(world.job.status.recovery.spares, "1/1") << "job-gpu-1-1 is the spare";

  world.job.spec.data_parallel = 1;
  world.settle();
  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.plan()->replica_count(), 1);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.restarts, 1);
}

TEST(Spares, GoAndComeWithASuspend) {
  World world = with_spare();
  world.job.spec.suspend = true;
  world.settle();
  EXPECT_THAT(world.pods, IsEmpty());
  EXPECT_EQ(world.job.status.recovery.spares, "");
  world.job.spec.suspend = false;
  world.run();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.recovery.spares, "1/1");
}

TEST(Spares, APodGroupOfKueueCountsThemAndKeepsTheirNumber) {
  World world = two_and_a_spare();
  world.job.meta.labels = {{"kueue.x-k8s.io/queue-name", "team"}};
  world.settle();
  EXPECT_EQ(world.pods_created, 3) << "at once: Kueue lets in a whole group";
  for (const auto& input : world.last_created)
    EXPECT_EQ(input.annotations.at("kueue.x-k8s.io/pod-group-total-count"), "3");
  world.run();
  world.job.spec.worker_groups[0].spares = 2;
  ++world.job.meta.generation;
  world.settle();
  EXPECT_EQ(world.condition("Accepted").status, "False");
  EXPECT_THAT(world.condition("Accepted").message,
              HasSubstr("workerGroups[].spares: 2 instead of 1: a pod group of Kueue keeps"));
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

World with_kueue(const std::function<void(api::JobSpec&)>& edit = nullptr) {
  World world = two_and_a_spare(edit);
  world.job.meta.labels = {{"kueue.x-k8s.io/queue-name", "team"}};
  world.graceful = true;
  world.run();
  world.steps(3, 1.2);
  return world;
}

void all_end(World& world) {
  world.now += 5s;
  for (auto& pod : world.pods) {
    if (!pod.meta.deleting || pod.ended) continue;
    pod.phase = "Failed";
    pod.ended = world.now;
  }
  world.settle();
}

// Kueue lets the group in when all its pods are there, so the job would wait for the back-off of
// its spare, which grows with each eviction.
TEST(Spares, AfterAnEvictionByKueueTheyComeWithTheWorkers) {
  World world = with_kueue();
  for (int evictions = 1; evictions <= 4; ++evictions) {
    for (auto& pod : world.pods) {
      if (pod.ended) continue;
      pod.meta.deleting = world.now + 120s;
      pod.meta.deletion_grace_seconds = 120;
    }
    world.settle();
    all_end(world);
    EXPECT_EQ(world.pods_created, 3 + 3 * evictions);
    EXPECT_EQ(world.last_created.size(), 3U) << evictions;
    world.run();
    world.steps(3, 1.2);
    EXPECT_EQ(world.job.status.recovery.spares, "1/1");
  }
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
}

TEST(Spares, ThatEndAloneComeLaterInAGroupOfKueueToo) {
  World world = with_kueue();
  world.fail(kSpare, 1);
  world.settle();
  EXPECT_EQ(world.pods_created, 3);
  let_time_pass(world, 20);
  EXPECT_EQ(world.pods_created, 4);
}

TEST(Spares, ASuspendedJobGivesThemBackToItsQueue) {
  World world = with_kueue();
  world.job.spec.suspend = true;
  world.settle();
  EXPECT_EQ(world.pods_deleted, 3);
  EXPECT_EQ(world.pods.front().meta.annotations.at("kueue.x-k8s.io/retriable-in-group"), "false");
  all_end(world);
  EXPECT_EQ(world.condition("Suspended").status, "True");
  world.job.spec.suspend = false;
  world.settle();
  ASSERT_EQ(world.pods_created, 6) << "as one group";
  for (const auto& input : world.last_created) {
    EXPECT_EQ(input.annotations.at("kueue.x-k8s.io/pod-group-total-count"), "3");
    EXPECT_EQ(input.labels.at("kueue.x-k8s.io/pod-group-name"), "job.1");
  }
}

// A plan that gave a stage to a spare says nothing about the pods of a resume.
TEST(Spares, ThatWereUsedAreNotWantedAfterAResumeWithoutSpares) {
  World world = with_kueue();
  world.fail("job-gpu-1", 137);
  world.settle();
  world.coordinator_applies();
  world.settle();
  ASSERT_THAT(ranks_of(*world.plan()), testing::Contains(kSpare));
  world.job.spec.suspend = true;
  world.settle();
  all_end(world);
  world.job.spec.worker_groups[0].spares = 0;
  world.job.spec.suspend = false;
  const int before = world.pods_created;
  world.settle();
  EXPECT_EQ(world.pods_created, before + 2);
  for (const auto& input : world.last_created)
    EXPECT_EQ(input.annotations.at("kueue.x-k8s.io/pod-group-total-count"), "2");
  world.run();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_THAT(ranks_of(*world.plan()), testing::Not(testing::Contains(kSpare)));
}

TEST(Spares, ScopeJobHasNoUseForThem) {
  World world = with_spare([](api::JobSpec& spec) { spec.restart_scope = "Job"; });
  EXPECT_THAT(world.condition("Accepted").message,
              HasSubstr("workerGroups[gpu].spares: have no effect with failurePolicy.restartScope "
                        "Job"));
}

TEST(Spares, ANewLeaderShowsTheCountOfTheFormer) {
  World world = with_spare();
  world.members.reset();
  world.settle();
  EXPECT_EQ(world.job.status.recovery.spares, "1/1");
}

}  // namespace spares_test
}  // namespace weir::reconcile::test
