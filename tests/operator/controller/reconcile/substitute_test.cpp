// SPDX-License-Identifier: Apache-2.0
// Idle workers that take the places of lost ones.
#include <algorithm>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace substitute_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

bool has_stage(const schedule::Plan& plan, const std::string& pod) {
  return std::ranges::any_of(plan.ranks, [&](const auto& rank) { return rank.pod == pod; });
}

// Two stages on three workers.
World with_idle(const std::function<void(api::JobSpec&)>& edit = nullptr) {
  World world;
  world.job.spec.worker_groups[0].count = 3;
  world.job.spec.stages = 2;
  if (edit) edit(world.job.spec);
  world.run();
  world.steps(3, 1.2);
  EXPECT_THAT(world.plan()->idle, SizeIs(1));
  return world;
}

// A worker with a stage that is not the coordinator.
std::string victim_of(const World& world) {
  for (const auto& rank : world.plan()->ranks) {
    if (rank.pod != "job-gpu-0") return rank.pod;
  }
  return "";
}

void let_time_pass(World& world, int seconds) {
  for (int i = 0; i < seconds; i += 10) {
    world.now += 10s;
    world.report->received = world.now;
    world.report->body.step += 5;
    world.settle();
  }
}

TEST(Substitute, AnIdleWorkerTakesThePlaceOfALostOneAtOnce) {
  World world = with_idle();
  const std::string idle = world.plan()->idle.front(), lost = victim_of(world);
  const auto stages = world.plan()->stages;
  world.fail(lost, 137);
  world.settle();

  ASSERT_EQ(world.job.status.plan.revision, 2) << "before a new pod has come";
  const schedule::Plan& plan = *world.plan();
  EXPECT_EQ(plan.trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(plan.state, schedule::StateMove::kRecover);
  EXPECT_EQ(plan.stages, stages);
  EXPECT_TRUE(has_stage(plan, idle));
  EXPECT_FALSE(has_stage(plan, lost));
  EXPECT_THAT(plan.idle, IsEmpty());
  const auto taken = std::ranges::find(plan.ranks, idle, &schedule::RankPlace::pod);
  EXPECT_EQ(taken->pod_uid, world.pod(idle).meta.uid);
  EXPECT_EQ(taken->node, world.pod(idle).node);
  EXPECT_EQ(world.last_note("SpareUsed"),
            idle + " takes stage " + std::to_string(taken->stage) + " of " + lost);
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pod(lost + "-1").phase, "Pending");

  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.condition("Ready").status, "True");
}

TEST(Substitute, OneThatTheCoordinatorDoesNotHearTakesNoPlace) {
  World world = with_idle();
  const std::string idle = world.plan()->idle.front();
  world.report->body.members = {
      {.pod = idle, .pod_uid = world.pod(idle).meta.uid, .silent_seconds = 8}};
  world.fail(victim_of(world), 137);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.plan.revision, 1) << "it would wait for a machine that is gone";

  world.report->body.members[0].silent_seconds = 0;
  world.settle();
  EXPECT_EQ(world.job.status.plan.revision, 2);
  EXPECT_TRUE(has_stage(*world.plan(), idle));
}

TEST(Substitute, ThePodOfTheLostWorkerIsNotWaitedFor) {
  World world = with_idle();
  const std::string lost = victim_of(world);
  world.fail(lost, 137);
  world.settle();
  world.coordinator_applies();
  world.settle();
  const int deleted = world.pods_deleted;
  let_time_pass(world, 2000);  // beyond scheduling.timeoutSeconds and startupTimeoutSeconds
  EXPECT_EQ(world.condition("Ready").status, "True");
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.pods_deleted, deleted);

  world.kubelets_run();
  let_time_pass(world, 2000);  // it has a node, but does not register
  EXPECT_EQ(world.job.status.restarts, 1);
  world.workers_register();
  world.settle();
  EXPECT_EQ(world.job.status.plan.revision, 2) << "it is idle now";
  EXPECT_EQ(world.condition("Ready").status, "True");

  const std::string second = victim_of(world);
  world.fail(second, 137);
  world.settle();
  EXPECT_EQ(world.job.status.plan.revision, 3);
  EXPECT_TRUE(has_stage(*world.plan(), lost + "-1"));
}

TEST(Substitute, TheLossOfAnIdleWorkerIsNoRestart) {
  World world = with_idle();
  const std::string idle = world.plan()->idle.front();
  if (idle == "job-gpu-0") GTEST_SKIP() << "it is the coordinator";
  world.fail(idle, 137);
  let_time_pass(world, 30);
  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.condition("Ready").status, "True");
  EXPECT_EQ(world.pod(idle + "-1").phase, "Pending") << "it is made again";
  EXPECT_EQ(world.job.status.plan.revision, 1);
}

TEST(Substitute, NobodyTakesAPlanIfTheCoordinatorIsLost) {
  World world = with_idle();
  world.fail("job-gpu-0", 137);
  world.settle();
  EXPECT_EQ(world.job.status.plan.revision, 1);
  world.kubelets_run();
  world.settle();
  world.workers_register();
  world.settle();
  EXPECT_EQ(world.job.status.plan.revision, 2);
}

// It finds the new one within seconds, and perhaps it alone holds what the job has trained.
TEST(Substitute, ARankThatANewCoordinatorDoesNotKnowYetKeepsItsPlace) {
  World world = with_idle();
  const std::string rank = victim_of(world);
  world.fail("job-gpu-0", 137);
  world.settle();
  world.kubelets_run();
  world.settle();
  world.now += 1s;
  world.workers_register();
  std::erase_if(world.members->body.members, [&](const auto& one) { return one.pod == rank; });
  world.report.reset();
  world.settle();
  EXPECT_EQ(world.job.status.plan.revision, 1);

  World never = world;
  never.now += 10s;
  never.settle();
  ASSERT_EQ(never.job.status.plan.revision, 2);
  EXPECT_FALSE(has_stage(*never.plan(), rank));

  world.now += 1s;
  world.workers_register();
  world.settle();
  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_TRUE(has_stage(*world.plan(), rank));
}

TEST(Substitute, ItIsOfTheSameGroupAndItsScopeIsTheWorker) {
  World job = with_idle([](api::JobSpec& spec) { spec.restart_scope = api::RestartScope::kJob; });
  job.fail(victim_of(job), 137);
  job.settle();
  EXPECT_EQ(job.job.status.plan.revision, 1);

  World other = with_idle([](api::JobSpec& spec) {
    spec.worker_groups[0].count = 1;
    api::WorkerGroup second = spec.worker_groups[0];
    second.name = "other";
    second.count = 2;
    second.stage_range = {{1, 1}};
    spec.worker_groups.push_back(second);
    spec.worker_groups[0].stage_range = {{0, 0}};
  });
  ASSERT_TRUE(has_stage(*other.plan(), "job-gpu-0"));
  const std::string idle = other.plan()->idle.front(), lost = victim_of(other);
  other.fail(lost, 137);
  other.settle();
  EXPECT_TRUE(has_stage(*other.plan(), idle));
  EXPECT_EQ(other.plan()->ranks.front().pod, "job-gpu-0");
}

TEST(Substitute, WaitsForAllWorkersIfTheSpecWasEdited) {
  World world = with_idle();
  world.fail(victim_of(world), 137);
  world.job.spec.stages = 3;
  world.settle();
  EXPECT_EQ(world.job.status.plan.revision, 1);
}

TEST(Substitute, IsNotTriedAgainIfTheWorkersRefuseIt) {
  World world = with_idle();
  world.fail(victim_of(world), 137);
  world.settle();
  ASSERT_EQ(world.job.status.plan.revision, 2);
  world.report->body.last_switch =
      protocol::LastSwitch{2, protocol::Outcome::kRefused, 3, 0, "job-gpu-2: no memory"};
  world.report->received = world.now;
  let_time_pass(world, 60);
  EXPECT_EQ(world.job.status.plan.revision, 2);
}

}  // namespace substitute_test
}  // namespace weir::reconcile::test
