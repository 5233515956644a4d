// SPDX-License-Identifier: Apache-2.0
// Conditions, events and the measured part of the status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace conditions_test {

using ::testing::HasSubstr;

TEST(WorkersView, SaysThatAnImageCannotBePulled) {
  World world;
  world.settle();
  world.kubelets_run();
  auto& pod = world.pod("job-gpu-2");
  pod.started = pod.ready = false;
  pod.waiting_reason = "ImagePullBackOff";
  pod.waiting_message = "worker:1 not found";
  world.settle();

  EXPECT_EQ(world.condition("WorkersReady").reason, "PodCannotStart");
  EXPECT_EQ(world.job.status.worker_groups[0].pending_reason,
            "ImagePullBackOff: worker:1 not found");
}

TEST(WorkersView, NamesWorkersWithoutAStage) {
  World world;
  world.job.spec.worker_groups[0].count = 6;
  world.run();

  EXPECT_EQ(world.condition("WorkersReady").status, "True");
  EXPECT_THAT(world.condition("WorkersReady").message,
              HasSubstr("2 of 6 workers have no stage (job-gpu-"));
  EXPECT_THAT(world.condition("WorkersReady").message, HasSubstr("the model has 4 layers"));
  EXPECT_EQ(world.event_count("IdleWorkers"), 1);
}

TEST(TraceView, RefusesAWishOnceThatCannotBeFulfilled) {
  World world = training();
  const auto wish = [&](const std::string& text) {
    world.job.meta.annotations["weir.dev/trace"] = text;
    world.settle();
    world.settle();
  };
  wish("5f3a steps=3");
  wish("5f3a steps=3 replica=0");
  EXPECT_EQ(world.event_count("TraceRefused"), 0);

  wish("foo");
  EXPECT_EQ(world.event_count("TraceRefused"), 1);
  EXPECT_EQ(world.last_note("TraceRefused"),
            "weir.dev/trace: expected \"<id> steps=1..1000\", and behind it \" replica=N\" for one "
            "of them, found 'foo'");
  wish("5f3a steps=3 replica=1");
  EXPECT_EQ(world.last_note("TraceRefused"), "weir.dev/trace: replica 1: the plan has 1");
  world.fail("job-gpu-2", 1);
  world.settle(1);
  wish("5f3b steps=3");
  EXPECT_EQ(world.event_count("TraceRefused"), 3);
  EXPECT_EQ(world.last_note("TraceRefused"),
            "weir.dev/trace: no steps are made now (" + world.condition("Ready").reason + ")");
}

TEST(ModelView, IsWhatTheWorkersSayAndToldOnce) {
  World world;
  world.run();
  EXPECT_EQ(world.job.status.model, api::ModelStatus{}) << "older workers tell no parameters";
  EXPECT_EQ(world.event_count("ModelDescribed"), 0);

  protocol::ModelInfo& model = world.members->body.model;
  model = {"LlamaForCausalLM", 4, "sha256:0", 162'826'560, "torch 2.15.0", "the same bits"};
  world.settle();
  EXPECT_EQ(world.job.status.model,
            (api::ModelStatus{"LlamaForCausalLM", "torch 2.15.0", 4, 162'826'560}));
  world.settle();
  EXPECT_EQ(world.event_count("ModelDescribed"), 1);
  EXPECT_EQ(world.last_note("ModelDescribed"),
            "LlamaForCausalLM, 4 layers, 162.8 M parameters, torch 2.15.0; the same bits");

  model = {"mlp", 4, "sha256:1", 90'000};
  world.settle();
  EXPECT_EQ(world.last_note("ModelDescribed"), "mlp, 4 layers, 90000 parameters");
}

TEST(ModelView, TextsAreCutAndToldOnce) {
  World world;
  world.run();
  world.members->body.model = {std::string(1000, 'x'), 4, "sha256:0", 1, std::string(1000, 'y')};
  for (int pass = 0; pass < 3; ++pass) world.settle();
  EXPECT_EQ(world.job.status.model.name, std::string(256, 'x'));
  EXPECT_EQ(world.job.status.model.engine, std::string(256, 'y'));
  EXPECT_EQ(world.event_count("ModelDescribed"), 1);
}

TEST(ModelView, TellsOfAnExportAlthoughTheCoordinatorHasEnded) {
  World world = training();
  world.report->body.exported = {.folder = "/ckpt/hf", .step = 2000, .bytes = 651'306'240};
  world.fail("job-gpu-0", 0);
  world.settle();
  EXPECT_EQ(world.condition("Complete").status, "True");
  EXPECT_EQ(world.job.status.model.exported, "/ckpt/hf");
  EXPECT_EQ(world.event_count("Exported"), 1);
  EXPECT_EQ(world.last_note("Exported"), "/ckpt/hf, 651 MB, step 2000");
}

// As kubectl wait and tools that follow kstatus read it.
TEST(EndView, TellsEveryEndTheSameWay) {
  World well = training();
  EXPECT_EQ(well.condition("Finished").status, "Unknown");
  well.fail("job-gpu-0", 0);
  well.settle();
  EXPECT_EQ(well.condition("Finished").status, "True");
  EXPECT_EQ(well.condition("Finished").reason, "Succeeded");
  EXPECT_EQ(well.condition("Ready").status, "True");
  EXPECT_EQ(well.condition("Ready").reason, "Complete");
  EXPECT_NE(well.condition("Stalled").status, "True");

  World ill = training();
  ill.fail("job-gpu-1", 2);
  ill.settle();
  EXPECT_EQ(ill.condition("Finished").status, "True");
  EXPECT_EQ(ill.condition("Finished").reason, "ConfigurationError");
  EXPECT_EQ(ill.condition("Stalled").status, "True");
  EXPECT_EQ(ill.condition("Stalled").reason, "ConfigurationError");
  EXPECT_EQ(ill.condition("Ready").status, "False");
  EXPECT_EQ(ill.condition("Ready").reason, "Failed");
}

TEST(ScheduledView, OfAGangWaitsUntilAllFit) {
  World world;
  world.job.spec.scheduler_name = "volcano";
  world.settle();
  for (auto& pod : world.pods) {
    pod.conditions.push_back(
        {"PodScheduled", "False", "Unschedulable", "3/4 tasks in gang unschedulable", {}});
  }
  world.settle();
  world.settle();

  EXPECT_EQ(world.condition("PodsScheduled").reason, "WaitingForGang");
  EXPECT_THAT(world.condition("PodsScheduled").message,
              HasSubstr("4 of 4 pods have no node: gpu: 3/4 tasks in gang"));
  EXPECT_EQ(world.event_count("Unschedulable"), 1) << "one event";
}

TEST(NetworkView, TellsWhenMeasurementsEndAndWhy) {
  World world = training();
  world.links(kFast, kFast);
  world.steps(1, 1.2);
  EXPECT_EQ(world.condition("NetworkMetricsAvailable").message, "6 link directions measured");

  world.estimates.freshness = estimator::Freshness::kQueryFailed;
  world.estimates.detail = "connection refused";
  world.steps(3, 1.2);

  EXPECT_EQ(world.condition("NetworkMetricsAvailable").status, "False");
  EXPECT_EQ(world.condition("NetworkMetricsAvailable").message, "connection refused");
  EXPECT_EQ(world.event_count("MetricsUnavailable"), 1);
  EXPECT_THAT(world.last_note("MetricsUnavailable"), HasSubstr(": connection refused"));

  world.job.spec.adaptation.mode = "Off";
  world.settle();
  EXPECT_EQ(world.condition("NetworkMetricsAvailable").reason, "Disabled");
  EXPECT_EQ(world.condition("NetworkMetricsAvailable").status, "Unknown") << "nobody must act";
}

TEST(NetworkView, OneWorkerHasNothingToMeasure) {
  World world = training([](api::JobSpec& spec) {
    spec.worker_groups.at(0).count = 1;
    spec.stages = 1;
  });
  world.estimates.freshness = estimator::Freshness::kNoSeries;
  world.estimates.detail = "no link has had traffic yet";
  world.steps(3, 1.2);

  ASSERT_NE(world.plan(), nullptr);
  ASSERT_EQ(world.plan()->ranks.size(), 1U);
  EXPECT_EQ(world.condition("NetworkMetricsAvailable").status, "Unknown");
  EXPECT_EQ(world.condition("NetworkMetricsAvailable").reason, "NoLinks");
}

TEST(NetworkView, AContendedLinkIsToldOnceAndSoIsItsEnd) {
  World world = training();
  world.job.spec.adaptation.mode = "Observe";
  world.links(kFast, kSlow);
  world.steps(3, 1.2);
  EXPECT_EQ(world.event_count("NetworkContended"), 1);
  EXPECT_EQ(world.condition("Degraded").message, "link n2->n3 40.0Mbit/s, usually 3.2Gbit/s");

  world.links(kFast, kFast);
  world.steps(3, 1.2);

  EXPECT_EQ(world.event_count("NetworkRecovered"), 1);
  EXPECT_EQ(world.condition("Degraded").reason, "AsPlanned");
}

TEST(NetworkView, StepsThatChangeNothingAreToldOnceAndWorstOfAll) {
  World world = training();
  world.job.spec.adaptation.mode = "Observe";
  world.links(kFast, kSlow);
  world.report->body.skipped_in_row = 3;
  world.steps(3, 1.2);
  EXPECT_EQ(world.condition("Degraded").reason, "StepsSkipped");
  EXPECT_THAT(world.last_note("StepsSkipped"), HasSubstr("3 steps in a row up to step "));
  EXPECT_EQ(world.event_count("StepsSkipped"), 1);
  EXPECT_EQ(world.job.report.network_state, "Contended") << "the link is slow all the same";

  world.report->body.skipped_in_row = 0;
  world.steps(3, 1.2);
  EXPECT_EQ(world.condition("Degraded").reason, "NetworkContended");
}

TEST(NetworkView, OtherTroubleIsNoContendedNetwork) {
  World world = training();
  world.job.spec.adaptation.mode = "Observe";
  world.links(kFast, kFast);
  world.report->body.skipped_in_row = 1;
  world.steps(20, 1.2);
  EXPECT_EQ(world.condition("Degraded").status, "True");
  EXPECT_EQ(world.job.report.network_state, "Healthy");
}

TEST(ReportView, NamesTheSixteenWorstLinksTheSlowestFirst) {
  World world = training();
  world.links(kFast, 1e3);
  for (int i = 0; i < 20; ++i) {
    auto link = world.estimates.links.front();
    link.from_node = "far-" + std::to_string(i);
    link.now = 1e8 + i;
    world.estimates.links.push_back(link);
  }
  world.estimates.links.back().now = 0;  // never measured
  world.steps(1, 100);

  const auto& worst = world.job.report.worst_links;
  ASSERT_EQ(worst.size(), 16U);
  EXPECT_EQ(worst[0].bandwidth, "8.0kbit/s");
  EXPECT_EQ(worst[0].from_stage + worst[0].to_stage, 3) << "boundary 1";
  EXPECT_EQ(worst[2].from_node, "far-0");
  EXPECT_EQ(worst[2].bandwidth, "800.0Mbit/s");
  EXPECT_EQ(world.job.report.network_state, "Contended");
}

}  // namespace conditions_test
}  // namespace weir::reconcile::test
