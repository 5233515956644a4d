// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/model.h"

#include <gtest/gtest.h>

namespace weir::planner {
namespace model_test {

using namespace std::chrono_literals;

Layer measured_at_2_and_8() {
  Layer layer;
  layer.times["fast"] = {{2, 10ms, 20ms, 3ms}, {8, 40ms, 50ms, 4ms}};
  layer.times["slow"] = {{2, 30ms, 60ms, 9ms}};
  return layer;
}

TEST(LayerTime, IsLinearBetweenMeasuredSizes) {
  const LayerTime time = layer_time(Model{}, measured_at_2_and_8(), "fast", 4);
  EXPECT_EQ(time.samples, 4);
  EXPECT_EQ(time.forward, 20ms);
  EXPECT_EQ(time.backward, 30ms);
  EXPECT_EQ(time.update, 3ms) << "once a step, whatever the size";
}

TEST(LayerTime, IsExactAtAMeasuredSize) {
  EXPECT_EQ(layer_time(Model{}, measured_at_2_and_8(), "fast", 8).backward, 50ms);
}

TEST(LayerTime, BelowTheSmallestSizeSplittingGainsNothing) {
  const LayerTime time = layer_time(Model{}, measured_at_2_and_8(), "fast", 1);
  EXPECT_EQ(time.forward, 10ms);
  EXPECT_EQ(time.samples, 1);
}

TEST(LayerTime, AboveTheLargestSizeItIsProportional) {
  EXPECT_EQ(layer_time(Model{}, measured_at_2_and_8(), "fast", 16).forward, 80ms);
}

TEST(LayerTime, ProportionalKeepsTheTimePerSample) {
  Model model;
  model.scaling = Scaling::kProportional;
  EXPECT_EQ(layer_time(model, measured_at_2_and_8(), "fast", 1).forward, 5ms);
  EXPECT_EQ(layer_time(model, measured_at_2_and_8(), "fast", 8).forward, 40ms);
}

TEST(LayerTime, AnUnknownClassUsesTheFirst) {
  EXPECT_EQ(layer_time(Model{}, measured_at_2_and_8(), "other", 2).forward, 10ms);
  EXPECT_EQ(layer_time(Model{}, measured_at_2_and_8(), "slow", 2).forward, 30ms);
  EXPECT_EQ(layer_time(Model{}, Layer{}, "fast", 2).forward, 0ms);
}

TEST(LinkBetween, PrefersTheNodeThenThePairThenTheDefault) {
  Cluster cluster;
  cluster.links = {{"a", "b", 5e6, 1ms}};

  EXPECT_EQ(link_between(cluster, "a", "a").bytes_per_second, 12e9);
  EXPECT_EQ(link_between(cluster, "a", "b").bytes_per_second, 5e6);
  EXPECT_EQ(link_between(cluster, "a", "b").latency, 1ms);
  EXPECT_EQ(link_between(cluster, "b", "a").bytes_per_second, 1.25e9) << "one direction each";
  EXPECT_EQ(link_between(cluster, "b", "a").latency, 50us);
}

}  // namespace model_test
}  // namespace weir::planner
