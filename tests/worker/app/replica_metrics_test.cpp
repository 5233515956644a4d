// SPDX-License-Identifier: Apache-2.0
// What a worker tells of the other replicas: the operator compares replicas by the time of their
// steps less the wait for each other.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/app/exposition.h"

namespace weir::app {
namespace replica_metrics_test {

using namespace std::chrono_literals;
using telemetry::Family;

std::vector<Family> families(int stage) {
  engine::Recorder recorder;
  schedule::Plan plan{.micro_batches = {3, 5}};
  plan.schedule.caps = {2, 1};
  recorder.stage_built(1, stage, 2, false, 0);
  recorder.plan_adopted(plan, 0);
  recorder.booked(protocol::StepPart::kSum, 500ms);
  recorder.synchronized({.operations = 4, .bytes_sent = 3000, .busy = 1500ms}, 500ms);
  recorder.step_done({.first_stage = stage == 0, .iteration_seconds = 2}, 1);
  return worker_families({.worker = "w"}, recorder.read(), {});
}

// The value of the series with that label, or of the only one.
double value_of(const std::vector<Family>& all, const std::string& name,
                const std::string& label = "") {
  for (const Family& family : all) {
    if (family.name != name) continue;
    for (const auto& sample : family.samples) {
      const bool found = label.empty() || std::ranges::any_of(sample.labels, [&](const auto& one) {
                           return one.first + "=" + one.second == label;
                         });
      if (found) return sample.value;
    }
  }
  return -1;
}

TEST(ReplicaMetrics, LeaveTheWaitForOthersOutOfAReplicasOwnTime) {
  const auto all = families(0);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_replica_step_seconds_total", "replica=1"), 1.5);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_stage_idle_seconds_total", "cause=sync"), 0.5);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_sync_wait_seconds_total", "kind=exact"), 0.5);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_sync_rounds_total", "kind=exact"), 1);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_sync_bus_bandwidth", "replica=1"), 2000);
}

TEST(ReplicaMetrics, ComeFromTheFirstStageWhereTheyAreOfTheReplica) {
  const auto all = families(1);
  EXPECT_EQ(value_of(all, "weir_replica_step_seconds_total"), -1);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_sync_wait_seconds_total", "kind=exact"), 0.5);
}

TEST(ReplicaMetrics, CountAveragesByTheSizeOfTheirGroups) {
  engine::Recorder recorder;
  schedule::Plan plan{.micro_batches = {4, 4, 4}};
  plan.schedule.caps = {1};
  recorder.stage_built(2, 0, 1, false, 0);
  recorder.plan_adopted(plan, 0);
  recorder.averaged(200ms, 3, 0.5, 0);
  recorder.averaged(100ms, 1, 1.25, 3e6);
  const auto all = worker_families({.worker = "w"}, recorder.read(), {});

  EXPECT_DOUBLE_EQ(value_of(all, "weir_sync_wait_seconds_total", "kind=exact"), 0);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_sync_wait_seconds_total", "kind=partial"), 0.2);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_sync_rounds_total", "kind=single"), 1);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_sync_staleness", "replica=2"), 1.25);
  EXPECT_DOUBLE_EQ(value_of(all, "weir_sync_bus_bandwidth", "replica=2"), 3e6);
  const auto sizes = std::ranges::find(all, "weir_sync_group_size", &Family::name);
  ASSERT_NE(sizes, all.end());
  ASSERT_EQ(sizes->samples.size(), 1U);
  EXPECT_DOUBLE_EQ(sizes->samples[0].histogram.sum, 4);
  EXPECT_EQ(sizes->samples[0].histogram.counts[0], 1U);
  EXPECT_EQ(sizes->samples[0].histogram.counts[2], 1U);
}

}  // namespace replica_metrics_test
}  // namespace weir::app
