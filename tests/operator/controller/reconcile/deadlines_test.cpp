// SPDX-License-Identifier: Apache-2.0
// Deadlines of start, progress, scheduling and the whole job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace deadlines_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Hang, RestartsTheWholeJobOnceAndCountsIt) {
  World world = training();
  for (int i = 0; i < 190; ++i) {  // reports come, the step stands still
    world.now += 10s;
    world.report->received = world.now;
    world.settle();
  }

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "NoProgress");
  EXPECT_EQ(world.job.status.last_restart_scope, "Job");
  EXPECT_EQ(world.pods_deleted, 4);
  EXPECT_EQ(world.pods_created, 8);
  EXPECT_THAT(world.last_note("Restarting"), HasSubstr("no step completed for progressDeadline"));
}

// Three ranks wait for that of stage 2, which computes.
protocol::Stall stall() {
  return {.seconds = 30, .waiting = 3, .ranks = {{0, 2, "backward", 7, 31}}};
}
constexpr auto kWhoWaits =
    "3 ranks wait for rank 2 (replica 0, stage 2, n3), in backward of micro-batch 7";

TEST(Hang, TellsWhoWaitsForWhomLongBeforeItsDeadline) {
  World world = training();
  world.now += 35s;
  world.report->received = world.now;
  world.report->body.stall = stall();
  world.settle();

  EXPECT_EQ(world.condition("Ready").status, "False");
  EXPECT_EQ(world.condition("Ready").reason, "Stalled");
  EXPECT_EQ(world.condition("Ready").message, std::string("no step after step 3: ") + kWhoWaits);
  EXPECT_EQ(world.last_note("Stalled"),
            std::string("no step for 30 s after step 3: ") + kWhoWaits + " for 31 s");

  for (int i = 0; i < 20; ++i) {  // it lasts
    world.now += 10s;
    world.report->received = world.now;
    world.report->body.stall->seconds += 10;
    EXPECT_LT(world.settle(), 3);
  }
  EXPECT_EQ(world.event_count("Stalled"), 1);
  EXPECT_EQ(world.job.status.restarts, 0);
  world.report->body.stall.reset();
  world.steps(1, 1.2);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Hang, NamesWhoAllWaitedForInTheCauseOfTheRestart) {
  World world = training();
  world.now += 1801s;
  world.report->received = world.now;
  world.report->body.stall = stall();
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "NoProgress");
  EXPECT_THAT(world.last_note("Restarting"), HasSubstr(std::string("step 3: ") + kWhoWaits));
}

TEST(Hang, AStallThatDoesNotFitThePlanIsNotBelieved) {
  for (const bool stage : {true, false}) {
    World world = training();
    world.report->body.stall = stall();
    if (stage) {
      world.report->body.stall->ranks[0].stage = 4;
    } else {
      world.report->body.plan_revision += 1;
    }
    world.settle();
    EXPECT_EQ(world.condition("Ready").reason, "Running") << stage;
  }
}

TEST(Hang, NeedsASecondWitnessWhenTheCoordinatorIsSilent) {
  World world = training();
  for (int i = 0; i < 400; ++i) {
    world.now += 10s;
    world.settle();
  }

  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.condition("WorkersReady").status, "Unknown");
  EXPECT_EQ(world.pods_deleted, 0);
}

// The coordinator is silent; weir_step of the others is scraped, and stands at `step` from now on.
void hear_workers_only(World& world, std::int64_t step) {
  world.estimates.freshness = estimator::Freshness::kStale;  // of links: there is no traffic
  world.estimates.progress = estimator::Progress{step, world.now, world.now};
}
void hear_again(World& world) {
  world.estimates.progress->seen = world.now;
}

TEST(Hang, MetricsThatStandStillAreTheSecondWitness) {
  World world = training();
  hear_workers_only(world, 3);
  world.now += 1790s;
  hear_again(world);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 0);
  world.now += 20s;
  hear_again(world);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "NoProgress");
  EXPECT_EQ(world.job.status.last_restart_scope, "Job");
  EXPECT_THAT(world.last_note("Restarting"), HasSubstr("weir_step in Prometheus stands at 3"));
}

TEST(Hang, MetricsThatMoveOrAreStaleKillNothing) {
  for (const bool moves : {true, false}) {
    World world = training();
    hear_workers_only(world, 3);
    for (int i = 0; i < 40; ++i) {
      world.now += 100s;
      if (moves) hear_workers_only(world, 4 + i);
      world.settle();
    }
    EXPECT_EQ(world.job.status.restarts, 0) << moves;
    EXPECT_EQ(world.condition("WorkersReady").status, "Unknown") << moves;
  }
}

TEST(Hang, ANewLeaderThatHearsNothingAsksTheMetricsToo) {
  World world = training();
  world.members.reset();
  world.report.reset();
  world.leading_since = world.now;
  world.settle();
  EXPECT_EQ(world.condition("WorkersReady").status, "True") << "what the former leader said stays";
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.workers_summary, "4/4");

  hear_workers_only(world, 3);
  world.now += 70s;
  world.settle();
  EXPECT_EQ(world.condition("WorkersReady").status, "Unknown");
  EXPECT_EQ(world.job.status.restarts, 0);

  world.now += 1800s;
  hear_again(world);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "NoProgress");
}

TEST(Hang, WithoutBudgetFailsTheJobForItsLackOfProgress) {
  World world;
  world.job.spec.max_restarts = 0;
  world.run();
  world.steps(3, 1.2);
  world.now += 1801s;
  world.report->received = world.now;
  world.settle();

  EXPECT_EQ(world.condition("Failed").reason, "NoProgress");
}

TEST(Startup, ThatTakesTooLongRestartsTheJob) {
  World world;
  world.settle();
  world.kubelets_run();
  world.workers_register();
  world.members->body.members.pop_back();
  world.settle();
  EXPECT_EQ(world.condition("WorkersReady").reason, "WaitingForRegistration");
  world.now += 899s;
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 0);
  world.now += 2s;
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "StartupTimedOut");
  EXPECT_EQ(world.pods_deleted, 4);
  EXPECT_THAT(world.last_note("Restarting"), HasSubstr("1 of 4 workers have not registered"));
}

TEST(Startup, ANewLeaderThatHasNoMembersYetRestartsNothing) {
  World world = training();
  world.now += 2h;
  world.leading_since = world.now;
  world.members.reset();
  world.report.reset();
  world.adaptation = {};
  for (int i = 0; i < 300; ++i) {
    world.now += 10s;
    world.settle();
  }

  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.pods_deleted, 0);
}

TEST(ActiveDeadline, FailsTheJobAndExcludesSuspendedTime) {
  World world;
  world.job.spec.active_deadline_seconds = 3600;
  world.run();
  world.now += 1000s;
  world.settle();
  world.job.spec.suspend = true;
  world.settle();
  world.now += 2h;
  world.settle();
  EXPECT_EQ(world.condition("Suspended").status, "True");
  world.job.spec.suspend = false;
  world.run();
  EXPECT_NE(world.condition("Failed").status, "True");
  EXPECT_EQ(world.job.status.suspended_seconds, 7200);
  world.now += 2601s;
  world.report->received = world.now;
  world.settle();

  EXPECT_EQ(world.condition("Failed").reason, "DeadlineExceeded");
}

TEST(Scheduling, ReleasesAllPodsWhenSomeFindNoNode) {
  World world;
  world.settle();
  world.kubelets_run();
  auto& pending = world.pod("job-gpu-3");
  pending.phase = "Pending";
  pending.node.clear();
  pending.started = pending.ready = false;
  pending.conditions.push_back(
      {"PodScheduled", "False", "Unschedulable", "0/3 nodes are available", std::nullopt});
  world.settle();
  EXPECT_EQ(world.condition("PodsScheduled").reason, "Unschedulable");
  EXPECT_THAT(world.condition("PodsScheduled").message, HasSubstr("gpu: 0/3 nodes are available"));
  world.now += 601s;
  world.settle();

  EXPECT_TRUE(world.pods.empty());
  EXPECT_EQ(world.condition("PodsScheduled").reason, "SchedulingTimedOut");
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 1);
  EXPECT_EQ(world.job.status.restarts, 0);

  world.now += 31s;
  world.run();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.scheduling_timeouts, 0);
}

void hold(api::Pod& pod, const std::string& gate) {
  pod.gates = {gate};
  pod.conditions.push_back({"PodScheduled", "False", "SchedulingGated",
                            "Scheduling is blocked due to non-empty scheduling gates",
                            std::nullopt});
}
void let_in(api::Pod& pod) {
  pod.gates.clear();
  pod.conditions.clear();
}

TEST(Scheduling, AGateOfSomebodyElseDoesNotHoldWhatTheOtherPodsHave) {
  World world;
  world.job.spec.scheduling_timeout_seconds = 60;
  world.settle();
  hold(world.pod("job-gpu-3"), "example.com/hold");
  world.kubelets_run();
  world.settle();
  EXPECT_EQ(world.condition("PodsScheduled").reason, "SchedulingGated");
  EXPECT_EQ(world.condition("Ready").reason, "Pending");

  world.now += 61s;
  world.settle();

  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 1);
  EXPECT_TRUE(world.pods.empty());
}

TEST(ActiveDeadline, DoesNotCountTheTimeBeforeTheJobIsLetIn) {
  for (const bool kueue : {true, false}) {
    World world;
    if (kueue) world.job.meta.labels["kueue.x-k8s.io/queue-name"] = "q";
    world.job.spec.active_deadline_seconds = 100;
    world.job.spec.scheduling_timeout_seconds = 0;
    world.settle();
    for (auto& pod : world.pods) hold(pod, kueue ? "kueue.x-k8s.io/admission" : "example.com/hold");
    world.settle();
    world.now += 2h;
    world.settle();
    EXPECT_EQ(world.condition("Failed").status, "Unknown");

    for (auto& pod : world.pods) let_in(pod);
    world.run();
    EXPECT_EQ(world.job.status.suspended_seconds, 7200);
    world.now += 95s;
    world.report->received = world.now;
    world.settle();
    EXPECT_EQ(world.condition("Ready").reason, "Running");
    world.now += 6s;
    world.settle();
    EXPECT_EQ(world.condition("Failed").reason, "DeadlineExceeded");
  }
}

// Whether a job of four stages of one layer has a plan, and else why not.
std::string plans_with(std::int64_t device_bytes, const std::string& copies,
                       const std::string& device = "cpu-8", int replicas = 1) {
  World world;
  world.job.spec.neighbor_copies = copies;
  world.job.spec.stages = 4;
  world.job.spec.data_parallel = replicas;
  world.job.spec.worker_groups[0].count = 4 * replicas;
  world.device = device;
  world.device_bytes = device_bytes;
  world.run();
  return world.plans.empty() ? world.condition("Accepted").message : "planned";
}

TEST(Planning, CountsTheMemoryOfCopiesWhereTheyMustBe) {
  std::int64_t fits = 10'000'000, not_yet = 0;
  while (fits - not_yet > 100) {
    const std::int64_t bytes = (fits + not_yet) / 2;
    (plans_with(bytes, "Auto") == "planned" ? fits : not_yet) = bytes;
  }
  ASSERT_LT(fits, 10'000'000);
  const std::int64_t copies = 15 * 1'000 * 10 / 9;  // of the layer, with the reserve
  EXPECT_EQ(plans_with(fits + copies + 100, "On"), "planned");
  EXPECT_THAT(plans_with(fits + copies - 1000, "On"),
              AllOf(HasSubstr("job-gpu-"),
                    HasSubstr(": copies need 0.01 MB, 0.01 MB are free; raise the memory limit, or "
                              "set recovery.neighborCopies to Auto or Off")));
  EXPECT_EQ(plans_with(fits, "Off"), "planned");
  EXPECT_EQ(plans_with(fits, "On", "H100"), "planned") << "copies lie beside the device's memory";
  EXPECT_EQ(plans_with(fits, "On", "cpu", 2), "planned") << "replicas are each other's copies";
  EXPECT_THAT(plans_with(not_yet, "On"), HasSubstr("no plan fits"));
}

TEST(Planning, AJobWithoutAFeasiblePlanFailsAndHoldsNothing) {
  World world;
  world.job.spec.worker_groups[0].count = 12;
  world.job.spec.stages = 12;  // the model has 4 layers
  world.run();
  EXPECT_EQ(world.condition("Accepted").reason, "NoFeasiblePlan");
  EXPECT_EQ(world.pods.size(), 12U);
  world.now += 890s;
  world.settle();
  EXPECT_EQ(world.pods.size(), 12U);

  world.now += 11s;
  world.settle();

  EXPECT_EQ(world.condition("Failed").reason, "NoFeasiblePlan");
  EXPECT_THAT(world.condition("Failed").message, HasSubstr("startupTimeoutSeconds 900"));
  EXPECT_THAT(world.condition("Failed").message, HasSubstr("stages"));
  EXPECT_TRUE(world.pods.empty());
}

TEST(Scheduling, AGatedPodWaitsForItsQuotaWithoutLimit) {
  World world;
  world.job.meta.labels["kueue.x-k8s.io/queue-name"] = "q";
  world.settle();
  for (auto& pod : world.pods) hold(pod, "kueue.x-k8s.io/admission");
  world.settle();
  world.now += 24h;
  world.settle();

  EXPECT_EQ(world.pods.size(), 4U);
  EXPECT_EQ(world.condition("PodsScheduled").reason, "WaitingForQuota");
  EXPECT_EQ(world.condition("Ready").reason, "Queued");
  EXPECT_EQ(world.job.status.gang_provider, "Kueue");

  for (auto& pod : world.pods) let_in(pod);
  world.now += 1s;
  world.settle();
  world.now += 590s;
  world.settle();
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 0) << "the time counts from admission";
  world.now += 10s;
  world.settle();
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 1);
}

TEST(Scheduling, ANewLeaderDoesNotKnowHowLongTheJobWasQueued) {
  World world;
  world.job.meta.labels["kueue.x-k8s.io/queue-name"] = "q";
  world.settle();
  world.now += 24h;
  world.leading_since = world.now;
  world.adaptation = {};
  world.settle();
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 0);
  world.now += 601s;
  world.settle();
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 1);
}

void volcano_says(World& world, const std::string& phase, const std::string& why) {
  auto group = std::make_shared<api::PodGroup>();
  group->meta.name = "job";
  group->phase = phase;
  group->why = why;
  world.gang.watched = true;
  world.gang.seen = group;
}

TEST(Scheduling, APendingPodGroupOfVolcanoWaitsInItsQueue) {
  World world;
  world.job.spec.scheduler_name = "volcano";
  world.settle();
  volcano_says(world, "Pending", "queue resource quota insufficient");
  world.now += 24h;
  world.settle();

  EXPECT_EQ(world.pods.size(), 4U);
  EXPECT_EQ(world.condition("PodsScheduled").reason, "WaitingForQuota");
  EXPECT_THAT(world.condition("PodsScheduled").message,
              HasSubstr("PodGroup job is Pending: queue resource quota insufficient"));
  EXPECT_EQ(world.condition("Ready").reason, "Queued");

  volcano_says(world, "Inqueue", "4/4 tasks in gang unschedulable");
  world.now += 1s;
  world.settle();
  EXPECT_EQ(world.condition("PodsScheduled").reason, "WaitingForGang");
  EXPECT_THAT(world.condition("PodsScheduled").message, HasSubstr("4/4 tasks in gang"));
  EXPECT_EQ(world.condition("Ready").reason, "Pending");
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 0);
  world.now += 601s;
  world.settle();
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 1) << "from the queue on";
}

}  // namespace deadlines_test
}  // namespace weir::reconcile::test
