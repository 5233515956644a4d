// SPDX-License-Identifier: Apache-2.0
// Plans with split backwards: when the planner makes them, what it tells, and what memory allows.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/plan.h"
#include "operator/planner/tool/check.h"
#include "worker/schedule/validate.h"

namespace weir::planner {
namespace split_test {

using namespace std::chrono_literals;
using testing::Each;
using testing::IsEmpty;
using testing::Le;

// Four layers of 10 ms forward and 20 ms backward, half of it weights; a micro-batch keeps 100
// bytes a layer up to its backward, and `held` of them up to its weights.
Model model(std::int64_t held = 100) {
  Model model;
  for (int i = 0; i < 4; ++i) {
    Layer layer{.id = std::to_string(i), .stash_bytes_per_sample = 100};
    layer.held_bytes_per_sample = held;
    layer.times["A"].push_back(
        {.forward = 10ms, .backward = 20ms, .backward_input = 10ms, .backward_weights = 10ms});
    model.layers.push_back(std::move(layer));
  }
  return model;
}

Cluster nodes(std::vector<std::int64_t> memory = {0, 0, 0, 0}) {
  Cluster cluster;
  cluster.default_latency = 0ns;
  cluster.memory_reserve = 0;
  for (std::size_t d = 0; d < memory.size(); ++d) {
    Device device;
    device.pod = device.node = "n" + std::to_string(d);
    device.device_class = "A";
    device.memory_bytes = memory[d];
    device.first_stage = device.last_stage = static_cast<int>(d);
    cluster.devices.push_back(device);
  }
  return cluster;
}

Request request() {
  Request request;
  request.global_batch = 16;
  request.micro_batch_size = 1;
  request.stages = 4;
  request.k_initial = 1;
  request.split = true;
  return request;
}

PlanReport planned(const Model& model, const Cluster& cluster, const Request& request) {
  const Result<PlanReport> report = plan(model, cluster, request);
  EXPECT_TRUE(report) << (report ? "" : report.error().message);
  if (!report) return {};
  const CheckedPlan checked = check_plan(model, cluster, report->plan);
  EXPECT_THAT(checked.broken, IsEmpty());
  for (std::size_t s = 0; s < checked.stages.size(); ++s) {
    EXPECT_EQ(checked.stages[s].memory.total, report->memory[s].total_bytes) << s;
  }
  return *report;
}

TEST(SplitPlan, IsShorterAndSaysByHowMuchAndHowFarAboveTheBound) {
  const PlanReport report = planned(model(), nodes(), request());
  ASSERT_TRUE(report.plan.schedule.split);
  EXPECT_THAT(report.plan.schedule.split->held, Each(4)) << "as the fullest device of whole ones";
  EXPECT_EQ(report.plan.schedule.k, 1);
  EXPECT_NEAR(report.whole_step_seconds, 19 * 0.030, 1e-9);
  EXPECT_LT(report.plan.predicted_step_seconds, 0.93 * report.whole_step_seconds);
  EXPECT_EQ(report.objective_seconds, report.whole_step_seconds) << "what its bound is about";
  EXPECT_GE(report.objective_seconds, report.lower_bound_seconds);
  EXPECT_GE(report.plan.predicted_step_seconds, report.split_bound_seconds);
  EXPECT_LT(report.split_bound_seconds, report.bound_seconds);
}

TEST(SplitPlan, IsWholeIfTheRequestOrTheLayersSaySo) {
  Request whole = request();
  whole.split = false;
  EXPECT_FALSE(planned(model(), nodes(), whole).plan.schedule.split);
  Request fixed = request();
  fixed.caps = {4, 3, 2, 1};
  fixed.k_initial.reset();
  EXPECT_FALSE(planned(model(), nodes(), fixed).plan.schedule.split) << "caps are the user's";
  Request static_order = request();
  static_order.family = schedule::Family::kOneFOneB;
  EXPECT_FALSE(planned(model(), nodes(), static_order).plan.schedule.split);
  Model cannot = model();
  for (Layer& layer : cannot.layers) {
    layer.times["A"].front().backward_input = layer.times["A"].front().backward_weights = 0ns;
  }
  const PlanReport report = planned(cannot, nodes(), request());
  EXPECT_FALSE(report.plan.schedule.split);
  EXPECT_EQ(report.split_bound_seconds, 0);
}

TEST(SplitPlan, ADeviceWithLessMemoryHoldsLess) {
  const PlanReport report = planned(model(), nodes({1000, 1000, 1000, 200}), request());
  ASSERT_TRUE(report.plan.schedule.split);
  EXPECT_EQ(report.plan.schedule.split->held[3], 2);
  EXPECT_EQ(report.plan.schedule.split->held[2], 4);
}

TEST(SplitPlan, WithoutMemoryForAPostponedWItHoldsItsCaps) {
  const PlanReport report = planned(model(), nodes({400, 300, 200, 100}), request());
  ASSERT_TRUE(report.plan.schedule.split);
  EXPECT_EQ(report.plan.schedule.split->held, report.plan.schedule.caps);
  EXPECT_THAT(report.plan.schedule.split->postponed, Each(0));
}

TEST(SplitPlan, WhatIsKeptUpToTheWeightsCounts) {
  const PlanReport most = planned(model(20), nodes({400, 320, 240, 160}), request());
  ASSERT_TRUE(most.plan.schedule.split);
  EXPECT_THAT(most.plan.schedule.split->held, Each(4)) << "1 x 100 + 3 x 20 on the last stage";
  const PlanReport whole = planned(model(300), nodes({400, 300, 200, 100}), request());
  EXPECT_FALSE(whole.plan.schedule.split) << "one micro-batch keeps 300 bytes after its B";
}

TEST(SplitPlan, StrictOrdersSplitToo) {
  Request strict = request();
  strict.dispatch = schedule::Dispatch::kStrict;
  const PlanReport report = planned(model(), nodes(), strict);
  ASSERT_TRUE(report.plan.schedule.split);
  EXPECT_EQ(report.plan.schedule.dispatch, schedule::Dispatch::kStrict);
  EXPECT_LT(report.plan.predicted_step_seconds, report.whole_step_seconds);
}

}  // namespace split_test
}  // namespace weir::planner
