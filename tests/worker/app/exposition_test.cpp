// SPDX-License-Identifier: Apache-2.0
#include "worker/app/exposition.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::app {
namespace exposition_test {

using namespace std::chrono_literals;
using telemetry::Family;

const WorkerLabels kLabels{.job_namespace = "team-a",
                           .job_name = "gpt",
                           .worker = "gpt-gpu-0",
                           .node = "n1",
                           .device = "A100",
                           .transport = "tcp",
                           .version = "0.1.0",
                           .emulated = true,
                           .threads = 3};

const Family* find(const std::vector<Family>& families, const std::string& name) {
  const auto at = std::find_if(families.begin(), families.end(),
                               [&](const Family& family) { return family.name == name; });
  return at == families.end() ? nullptr : &*at;
}

std::map<std::string, std::string> labels_of(const telemetry::Sample& sample) {
  return {sample.labels.begin(), sample.labels.end()};
}

engine::Statistics of_stage(int stage) {
  engine::Recorder recorder;
  schedule::Plan plan;
  plan.revision = 7;
  plan.schedule = {.k = 2, .caps = {4, 2}};
  recorder.stage_built(0, stage, 2, false, 0);
  recorder.plan_adopted(plan, 0);
  recorder.forward_done(3ms, 4, 1000);
  recorder.booked(protocol::StepPart::kFullPeer, 2s);
  recorder.step_done({.step = 9,
                      .next_step = 10,
                      .first_stage = stage == 0,
                      .loss = stage == 0 ? std::numeric_limits<double>::quiet_NaN() : 2.5,
                      .iteration_seconds = 0.25,
                      .samples = 8},
                     128);
  return recorder.read();
}

std::vector<transport::LinkReport> one_link() {
  transport::LinkReport link{.boundary = 1, .from_node = "n1", .to_node = "n2"};
  link.counters.bytes = 1000;
  link.counters.busy = 500ms;
  link.counters.credit_wait = 250ms;
  link.counters.transfers = 3;
  link.counters.histogram[1] = 2;
  link.counters.histogram[16] = 1;
  link.counters.transfer_seconds_sum = 0.5;
  link.counters.rtt_seconds = 0.001;
  return {link};
}

TEST(Exposition, HasTheWeightsOfASplitBackwardOnceThereAreSome) {
  engine::Statistics statistics = of_stage(0);
  const auto ops = [&] {
    std::string all;
    const auto families = worker_families(kLabels, statistics, {});
    for (const auto& sample : find(families, "weir_stage_op_seconds")->samples) {
      all += labels_of(sample)["op"];
    }
    return all;
  };
  EXPECT_EQ(ops(), "FBO");
  statistics.weights.add(0.25);
  EXPECT_EQ(ops(), "FBWO");
}

TEST(Exposition, PutsTheJobAndTheWorkerOnEverySeries) {
  for (const Family& family : worker_families(kLabels, of_stage(0), one_link())) {
    for (const auto& sample : family.samples) {
      auto labels = labels_of(sample);
      EXPECT_EQ(labels["pipeline_namespace"], "team-a") << family.name;
      EXPECT_EQ(labels["pipeline_job"], "gpt") << family.name;
      EXPECT_EQ(labels["worker"], "gpt-gpu-0") << family.name;
    }
  }
}

TEST(Exposition, ShowsThePlanInForce) {
  const auto families = worker_families(kLabels, of_stage(1), {});

  EXPECT_EQ(find(families, "weir_plan_epoch")->samples[0].value, 7);
  EXPECT_EQ(find(families, "weir_plan_k")->samples[0].value, 2);
  EXPECT_EQ(find(families, "weir_plan_cap")->samples[0].value, 2);
  EXPECT_EQ(find(families, "weir_step")->samples[0].value, 10);
  EXPECT_EQ(labels_of(find(families, "weir_worker_info")->samples[0])["emulated"], "true");
  EXPECT_EQ(labels_of(find(families, "weir_worker_info")->samples[0])["threads"], "3");
}

TEST(Exposition, SaysTheLossOnTheLastStageOnly) {
  EXPECT_EQ(find(worker_families(kLabels, of_stage(0), {}), "weir_loss"), nullptr);
  EXPECT_EQ(find(worker_families(kLabels, of_stage(1), {}), "weir_loss")->samples[0].value, 2.5);
}

TEST(Exposition, TellsOfValidationOnceThereWasOne) {
  engine::Statistics statistics = of_stage(1);
  EXPECT_EQ(find(worker_families(kLabels, statistics, {}), "weir_validation_step"), nullptr);

  engine::Recorder recorder;
  recorder.validated(10, 1.75, 300ms);
  const engine::Statistics validated = recorder.read();
  const auto last = worker_families(kLabels, validated, {});

  EXPECT_EQ(find(last, "weir_validation_loss")->samples[0].value, 1.75);
  EXPECT_EQ(find(last, "weir_validation_step")->samples[0].value, 10);
  EXPECT_DOUBLE_EQ(find(last, "weir_validation_seconds")->samples[0].histogram.sum, 0.3);

  recorder.validated(20, std::numeric_limits<double>::quiet_NaN(), 300ms);
  const auto other_stage = worker_families(kLabels, recorder.read(), {});
  EXPECT_EQ(find(other_stage, "weir_validation_loss"), nullptr);
  EXPECT_EQ(find(other_stage, "weir_validation_step")->samples[0].value, 20);
}

TEST(Exposition, HasEveryCauseOfIdlenessFromTheStart) {
  const auto families = worker_families(kLabels, of_stage(0), {});

  std::map<std::string, double> by_cause;
  for (const auto& sample : find(families, "weir_stage_idle_seconds_total")->samples) {
    by_cause[labels_of(sample)["cause"]] = sample.value;
  }
  EXPECT_EQ(by_cause, (std::map<std::string, double>{
                          {"wait_fwd", 0}, {"wait_bwd", 0}, {"credit", 2}, {"sync", 0}}));
}

TEST(Exposition, TellsAllPartsOfAStepAndIdlenessAsTheirSums) {
  engine::Recorder recorder;
  recorder.stage_built(0, 1, 2, false, 0);
  for (std::size_t i = 0; i < protocol::kStepParts; ++i) {
    recorder.booked(static_cast<protocol::StepPart>(i), std::chrono::seconds(1 << i));
  }
  const auto families = worker_families(kLabels, recorder.read(), {});

  double sum = 0;
  std::map<std::string, double> by_part, by_cause;
  for (const auto& sample : find(families, "weir_step_part_seconds_total")->samples) {
    by_part[labels_of(sample)["part"]] = sample.value;
    sum += sample.value;
  }
  for (const auto& sample : find(families, "weir_stage_idle_seconds_total")->samples) {
    by_cause[labels_of(sample)["cause"]] = sample.value;
  }
  EXPECT_EQ(by_part.size(), protocol::kStepParts);
  EXPECT_EQ(sum, (1 << protocol::kStepParts) - 1);
  EXPECT_EQ(by_cause["wait_fwd"],
            by_part["forward_late"] + by_part["forward_link"] + by_part["verdict"]);
  EXPECT_EQ(by_cause["wait_bwd"],
            by_part["gradient_late"] + by_part["gradient_link"] + by_part["note"]);
  EXPECT_EQ(by_cause["credit"], by_part["full_link"] + by_part["full_peer"]);
  EXPECT_EQ(by_cause["sync"], by_part["sum"] + by_part["average"]);
}

TEST(Exposition, DropsTheSeriesOfAStageThatIsGone) {
  const auto families = worker_families(kLabels, engine::Statistics{}, {});

  for (const char* name : {"weir_plan_k", "weir_stage_op_seconds", "weir_inflight_peak",
                           "weir_link_bytes_total", "weir_loss"}) {
    EXPECT_EQ(find(families, name), nullptr) << name;
  }
  EXPECT_EQ(find(families, "weir_samples_total")->samples[0].value, 0);
}

TEST(Exposition, NamesLinksByTheirBoundary) {
  const auto families = worker_families(kLabels, of_stage(0), one_link());

  const auto& bytes = find(families, "weir_link_bytes_total")->samples.at(0);
  EXPECT_EQ(bytes.value, 1000);
  auto labels = labels_of(bytes);
  EXPECT_EQ(labels["link"], "1-2");
  EXPECT_EQ(labels["dir"], "fwd");
  EXPECT_EQ(labels["from_node"], "n1");
  EXPECT_EQ(labels["to_node"], "n2");
  EXPECT_EQ(find(families, "weir_link_busy_seconds_total")->samples[0].value, 0.5);
  EXPECT_EQ(find(families, "weir_link_credit_wait_seconds_total")->samples[0].value, 0.25);
  const auto& histogram = find(families, "weir_link_transfer_seconds")->samples[0].histogram;
  EXPECT_EQ(histogram.bounds.size() + 1, histogram.counts.size());
  EXPECT_DOUBLE_EQ(histogram.bounds[0], 1e-4);
  EXPECT_EQ(histogram.counts[1], 2U);
  EXPECT_EQ(histogram.counts.back(), 1U);
}

TEST(Exposition, TellsOfLinksBetweenReplicasBesideThoseBetweenStages) {
  engine::Statistics statistics = of_stage(1);
  statistics.replica = 2;
  statistics.sync_links = {
      {.from = 0, .from_node = "n1", .to_node = "n6", .bytes = 9, .busy_seconds = 3}};
  for (const auto& links : {one_link(), std::vector<transport::LinkReport>()}) {
    const auto families = worker_families(kLabels, statistics, links);

    const auto& bytes = *find(families, "weir_link_bytes_total");
    ASSERT_EQ(bytes.samples.size(), links.size() + 1);
    EXPECT_EQ(bytes.samples.back().value, 9);
    auto labels = labels_of(bytes.samples.back());
    EXPECT_EQ(labels["replica"], "2");
    EXPECT_EQ(labels["link"], "s1:r0-r2");
    EXPECT_EQ(labels["dir"], "sync");
    EXPECT_EQ(labels["from_node"], "n1");
    EXPECT_EQ(labels["to_node"], "n6");
    EXPECT_EQ(find(families, "weir_link_busy_seconds_total")->samples.back().value, 3);
  }
  statistics.stage = -1;
  EXPECT_EQ(find(worker_families(kLabels, statistics, {}), "weir_link_bytes_total"), nullptr);
}

TEST(Exposition, DividesTheTimeOfALinkByNcclsAccountWhereThereIsOne) {
  auto links = one_link();
  EXPECT_EQ(find(worker_families(kLabels, of_stage(0), links), "weir_link_nccl_seconds_total"),
            nullptr);
  links[0].counters.nccl = transport::TransferTimes{
      .network = 400ms, .peer = 30ms, .gpu = 2ms, .kernel = 500ms, .events = 510ms};

  const auto families = worker_families(kLabels, of_stage(0), links);

  std::map<std::string, double> by_state;
  for (const auto& sample : find(families, "weir_link_nccl_seconds_total")->samples) {
    auto labels = labels_of(sample);
    EXPECT_EQ(labels["link"], "1-2");
    by_state[labels["state"]] = sample.value;
  }
  EXPECT_EQ(
      by_state,
      (std::map<std::string, double>{
          {"network", 0.4}, {"peer", 0.03}, {"gpu", 0.002}, {"kernel", 0.5}, {"events", 0.51}}));
}

TEST(Exposition, TellsFreeMemoryOfTheDeviceWhereItIsKnown) {
  EXPECT_EQ(find(worker_families(kLabels, of_stage(1), {}), "weir_gpu_free_bytes"), nullptr);

  const auto families = worker_families(kLabels, of_stage(1), {}, 4096);

  ASSERT_NE(find(families, "weir_gpu_free_bytes"), nullptr);
  const auto& sample = find(families, "weir_gpu_free_bytes")->samples[0];
  EXPECT_EQ(sample.value, 4096);
  EXPECT_EQ(labels_of(sample)["stage"], "1");
}

TEST(Exposition, TellsOfCheckpoints) {
  engine::Recorder recorder;
  const auto before = worker_families(kLabels, recorder.read(), {});
  ASSERT_NE(find(before, "weir_checkpoint_seconds"), nullptr);  // at 0 from the start
  EXPECT_EQ(find(before, "weir_checkpoint_last_step"), nullptr);

  recorder.checkpoint_written(300ms);
  recorder.checkpoint_complete(40);
  const auto after = worker_families(kLabels, recorder.read(), {});

  const auto& histogram = find(after, "weir_checkpoint_seconds")->samples[0].histogram;
  EXPECT_EQ(histogram.counts[3], 1U);  // 0.2 .. 0.4 s
  EXPECT_DOUBLE_EQ(histogram.sum, 0.3);
  EXPECT_EQ(find(after, "weir_checkpoint_last_step")->samples[0].value, 40);
}

}  // namespace exposition_test
}  // namespace weir::app
