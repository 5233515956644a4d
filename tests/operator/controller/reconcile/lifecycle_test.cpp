// SPDX-License-Identifier: Apache-2.0
// From an accepted job to its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace lifecycle_test {

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

// After an upgrade with another port or name, running workers read the new URL from the ConfigMap.
TEST(Lifecycle, WritesWhereTheOperatorIsWheneverItMoves) {
  World world;
  world.settle(10);
  EXPECT_EQ(world.written_url, "https://op:8443");

  world.control_url = "https://op:9443";
  world.settle(10);

  EXPECT_EQ(world.written_url, "https://op:9443");
}

// Applies one pass; how many status patches it had.
int step(World& world) {
  const Outcome outcome = world.pass();
  world.apply(outcome);
  return outcome.status ? 1 : 0;
}

TEST(Writes, TheFirstPassOnlyAsksForTheDryRun) {
  World world;

  const Outcome outcome = world.pass();

  ASSERT_EQ(outcome.requests.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<DryRunPods>(outcome.requests.front()));
  EXPECT_FALSE(outcome.status || outcome.report || outcome.memory || !outcome.events.empty());
}

// Pods of a job start one by one: what shows it is written every two seconds, not for each.
TEST(Writes, AStartIsShownNowAndThen) {
  World world;
  world.throttles = true;
  world.settle();
  int written = 0;
  for (auto& pod : world.pods) {
    world.now += 100ms;
    pod.node = "n";
    written += step(world);
    world.now += 100ms;
    pod.phase = "Running";
    pod.ready = pod.started = true;
    written += step(world);
  }
  EXPECT_EQ(written, 0);
  world.now += 1s;
  EXPECT_EQ(world.pass().requeue, 200ms);
  world.now += 200ms;

  EXPECT_EQ(step(world), 1);

  EXPECT_EQ(world.condition("PodsScheduled").status, "True");
  EXPECT_EQ(world.condition("WorkersReady").reason, "WaitingForRegistration");
  EXPECT_EQ(world.job.status.worker_groups.front().ready, 4);
}

TEST(Writes, ManyJobsShowTheirStartMoreSlowly) {
  World world;
  world.throttles = true;
  world.settle();
  world.jobs = 1000;
  world.kubelets_run();
  world.now += 99s;
  EXPECT_EQ(step(world), 0);
  world.now += 1s;
  EXPECT_EQ(step(world), 1);
}

TEST(Writes, WhatMattersIsWrittenAtOnce) {
  World world;
  world.throttles = true;
  world.run();
  EXPECT_EQ(world.condition("Ready").status, "True") << "at the time of the first patch";
  world.pod("job-gpu-1").phase = "Failed";
  world.pod("job-gpu-1").exit_code = 1;

  EXPECT_EQ(step(world), 1);

  EXPECT_EQ(world.condition("Ready").status, "False");
  EXPECT_EQ(world.job.status.restarts, 1);
}

// The report moves the version that the status patch carries, and would make it fail.
TEST(Writes, TheStatusComesBeforeTheReport) {
  World world;
  world.settle();
  world.kubelets_run();
  world.settle();
  world.workers_register();
  world.settle();
  world.coordinator_applies();

  const Outcome outcome = world.pass();
  ASSERT_TRUE(outcome.report && outcome.status);
  EXPECT_TRUE(outcome.status->guarded);

  std::vector<std::string> order;
  const Hands hands = {.ask =
                           [&](const Request& request) {
                             order.push_back(subject_of(request));
                             return Answer{};
                           },
                       .emit = [](const api::Event&) {},
                       .keep = [](const AdaptationState&) {}};
  carry_out(outcome, world.job, world.now, world.refused, hands);
  ASSERT_GE(order.size(), 2U);
  EXPECT_EQ(order[order.size() - 2], "status");
  EXPECT_EQ(order.back(), "status report");
}

// A tool that waits for Complete then reads the last step.
TEST(Writes, TheLastReportComesBeforeTheEnd) {
  World world;
  world.run();
  world.steps(world.report->body.total_steps - world.report->body.step - 1, 1.0);
  world.report->body.step += 1;
  world.now += 1s;
  world.report->received = world.now;
  world.fail("job-gpu-0", 0);

  const Outcome first = world.pass();
  EXPECT_FALSE(first.status);
  world.apply(first);
  EXPECT_EQ(world.job.report.step, world.report->body.total_steps);
  const Outcome second = world.pass();
  EXPECT_TRUE(second.status);
  EXPECT_FALSE(second.report);
  world.apply(second);
  EXPECT_EQ(world.condition("Complete").status, "True");
}

TEST(Writes, TheWholePlanIsShownWithItsRevision) {
  World world;
  world.settle();
  world.kubelets_run();
  world.settle();
  world.workers_register();

  EXPECT_EQ(step(world), 1);

  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.job.status.plan.k, 1);
  EXPECT_EQ(world.job.status.plan.stages.size(), 4U);
  EXPECT_EQ(step(world), 0);
}

// That pods are made, how far the start is, the plan, and that it runs.
TEST(Writes, AStartCostsFourStatusPatches) {
  World world;
  world.throttles = true;
  int written = step(world) + step(world) + step(world);
  world.kubelets_run();
  world.now += 2s;
  written += step(world) + step(world);
  world.workers_register();
  written += step(world) + step(world);
  world.coordinator_applies();
  written += step(world) + step(world);

  EXPECT_EQ(written, 4);
  EXPECT_EQ(world.condition("Ready").status, "True");
}

int reports(const World& world) {
  return world.pass().report ? 1 : 0;
}

TEST(Writes, AReportIsWrittenOnce) {
  World world;
  world.run();
  world.now += 60s;
  EXPECT_EQ(reports(world), 0) << "the coordinator has said nothing new";
  world.steps(1, 1.0);

  EXPECT_EQ(world.job.report.last_report_time, world.report->received);
  EXPECT_EQ(reports(world), 0);
}

TEST(Writes, ManyJobsTellTheirProgressMoreSlowly) {
  for (const int jobs : {1, 1000}) {
    World world;
    world.run();
    world.jobs = jobs;
    const int least = jobs == 1 ? 12 : 40, most = jobs == 1 ? 18 : 60;  // seconds, +-20 %
    const auto written = *world.job.report.last_report_time;
    world.now += std::chrono::seconds(least) - 1s;
    world.report->received = world.now;
    EXPECT_EQ(reports(world), 0) << jobs;
    world.now = written + std::chrono::seconds(most) + 1s;
    EXPECT_EQ(reports(world), 1) << jobs;
  }
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
  const Outcome outcome = world.pass();
  for (const Request& request : outcome.requests) {
    EXPECT_TRUE(std::holds_alternative<DeletePod>(request));
  }
  EXPECT_FALSE(outcome.status || outcome.report || outcome.memory || !outcome.events.empty());
}

TEST(Lifecycle, WorkersOfACompleteJobHaveTimeForTheirLastLogLines) {
  World world;
  world.run();
  world.fail("job-gpu-0", 0);
  world.settle();
  EXPECT_EQ(world.pods_deleted, 0);
  world.fail("job-gpu-1", 0);
  world.now += 9s;
  world.settle();
  EXPECT_EQ(world.pods_deleted, 0);
  EXPECT_EQ(world.pass().requeue, 1s);
  world.now += 1s;
  world.settle();

  EXPECT_EQ(world.pods_deleted, 2);
  EXPECT_EQ(world.pods.size(), 2U);  // cleanupPolicy Running keeps the ended pods
}

TEST(Lifecycle, PodsOfAFailedJobGoAtOnce) {
  World world;
  world.run();
  world.fail("job-gpu-1", 2);
  world.settle();

  EXPECT_EQ(world.condition("Failed").status, "True");
  EXPECT_EQ(world.pods.size(), 1U);
}

TEST(Lifecycle, WorkersThatEndBeforeTheCoordinatorStillCount) {
  World world;
  world.run();
  for (const char* pod : {"job-gpu-1", "job-gpu-2", "job-gpu-3"}) world.fail(pod, 0);
  world.settle();
  EXPECT_EQ(world.job.status.workers_summary, "4/4");
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  world.fail("job-gpu-0", 0);
  world.settle();

  EXPECT_EQ(world.condition("Complete").status, "True");
  EXPECT_EQ(world.job.status.workers_summary, "4/4");
}

TEST(Lifecycle, AnEditThatCannotRunLeavesTheRunningPodsAlone) {
  World world;
  world.run();
  world.job.spec.min_data_parallel = 2;
  EXPECT_GT(world.settle(), 0);

  EXPECT_EQ(world.condition("Accepted").reason, "NotImplemented");
  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.job.status.data_parallel, 1);
  EXPECT_EQ(world.pods.size(), 4U);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Lifecycle, AnEditedTemplateWaitsForTheNextStartOfAPod) {
  World world;
  world.run();
  world.job.spec.worker.image = "worker:2";
  world.settle();

  EXPECT_EQ(world.event_count("TemplateChangePending"), 1);
  EXPECT_EQ(world.pods_created, 4);
  EXPECT_EQ(world.pods_deleted, 0);
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
  world.job.spec.min_data_parallel = 2;

  EXPECT_GT(world.settle(), 0);

  EXPECT_TRUE(world.pods.empty());
  EXPECT_EQ(world.condition("Accepted").status, "False");
  EXPECT_EQ(world.condition("Accepted").reason, "NotImplemented");
  EXPECT_THAT(world.condition("Accepted").message, HasSubstr("minDataParallel"));
  EXPECT_EQ(world.condition("Ready").reason, "Invalid");
}

TEST(Lifecycle, AGangProviderThatIsNotBuiltMakesNoPods) {
  World world;
  world.job.spec.gang_provider = "KAI";
  world.settle();

  EXPECT_TRUE(world.pods.empty());
  EXPECT_EQ(world.condition("Accepted").reason, "GangProviderUnavailable");
  EXPECT_THAT(world.condition("Ready").message, HasSubstr("scheduling.gang.provider: KAI"));
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

// As a job that finds its own last checkpoint and has nothing left to do.
TEST(Completion, TellsTheLastStepAlthoughTheLastReportDidNotCome) {
  World world = training();
  world.fail("job-gpu-0", 0);
  world.settle();

  EXPECT_EQ(world.condition("Complete").status, "True");
  EXPECT_EQ(world.job.report.step, world.report->body.total_steps);
  EXPECT_EQ(world.job.report.percentage, 100);
}

TEST(Lifecycle, AFieldWithoutEffectIsNamed) {
  World world;
  world.job.spec.transport = "NCCL";
  world.job.spec.connections_per_link = 4;
  world.settle(10);
  EXPECT_THAT(world.condition("Accepted").message,
              HasSubstr("network.connectionsPerLink: has no effect with NCCL, use "
                        "NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD"));

  World marked;
  marked.job.spec.transport = "NCCL";
  marked.job.spec.congestion_control = "bbr";
  marked.job.spec.bulk_dscp = 1;
  marked.settle(10);
  EXPECT_THAT(marked.condition("Accepted").message,
              HasSubstr("network.congestionControl: has no effect on the sockets of NCCL"));
  EXPECT_THAT(marked.condition("Accepted").message,
              HasSubstr("network.dscp: has no effect on the sockets of NCCL"));
}

// edited: the profile that the workers measured.
std::string accepted_with(const std::function<void(api::CompressSpec&)>& edit,
                          const std::string& field) {
  World world = training([&](api::JobSpec& spec) { edit(spec.adaptation.compress); });
  std::string& profile = world.members->body.profile_json;
  profile.insert(profile.find('{') + 1, field);
  world.settle();
  return world.condition("Accepted").message;
}

TEST(Lifecycle, CodecsThatAModelCannotUseAreNamed) {
  const auto finest = [](api::CompressSpec& compress) { compress.coarsest = api::Coarsest::kBf16; };
  const auto enabled = [](api::CompressSpec& compress) { compress.enabled = true; };
  const std::string bf16 = R"("boundaryNumberBytes":2,)", own = R"("boundaryNumberBytes":0,)";
  EXPECT_THAT(accepted_with(finest, bf16),
              HasSubstr("; adaptation.compress.coarsest: BF16 has no effect on a bf16 job, allow "
                        "Int8"));
  EXPECT_THAT(accepted_with(enabled, own),
              HasSubstr("; adaptation.compress: has no effect on layers of one's own, which may "
                        "hand on several tensors"));
  EXPECT_EQ(accepted_with(finest, ""), "the job can run");
  EXPECT_EQ(accepted_with(enabled, bf16), "the job can run");
}

}  // namespace lifecycle_test
}  // namespace weir::reconcile::test
