// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/stage_costs.h"

#include <gmock/gmock.h>

namespace weir::planner {
namespace stage_costs_test {

using std::chrono::nanoseconds;
using testing::ElementsAre;

// Layer i has (i+1) x 10 bytes a sample for the next one.
Model chain_of(int layers) {
  Model model;
  for (int i = 0; i < layers; ++i) {
    Layer layer;
    layer.output_bytes_per_sample = 10 * (i + 1);
    layer.times["cpu"] = {{1, nanoseconds(1'000'000), nanoseconds(2'000'000)}};
    model.layers.push_back(layer);
  }
  return model;
}

Cluster nodes(int count) {
  Cluster cluster;
  for (int d = 0; d < count; ++d) {
    Device device;
    device.pod = "pod-" + std::to_string(d);
    device.device_class = "cpu";
    device.memory_bytes = 1'000'000;
    cluster.devices.push_back(device);
  }
  return cluster;
}

TEST(CostsOf, CountATensorOnceInEveryBoundaryItCrosses) {
  Model model = chain_of(4);
  schedule::Plan plan;
  plan.schedule.micro_batch_size = 2;
  plan.stages = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
  EXPECT_THAT(costs_of(model, nodes(4), plan).boundary_bytes, ElementsAre(20, 40, 60));

  model.edges = {{0, 1}, {1, 2}, {2, 3}, {0, 3}, {0, 2}};  // layer 0 is needed up to 3
  EXPECT_THAT(costs_of(model, nodes(4), plan).boundary_bytes, ElementsAre(20, 60, 80));
}

TEST(CostsOf, CountWhatALayerKeepsPerSampleAndPerMicroBatch) {
  Model model = chain_of(3);
  model.layers[1].stash_bytes_per_sample = 5;
  model.layers[1].stash_bytes = 7;
  schedule::Plan plan;
  plan.schedule.micro_batch_size = 2;
  plan.stages = {{0, 0}, {1, 2}};
  EXPECT_THAT(costs_of(model, nodes(2), plan).stash_bytes, ElementsAre(0, 2 * 5 + 7));
}

TEST(CostsOf, HasThePartsOfSplitBackwards) {
  Model model = chain_of(3);
  model.layers[1].times["cpu"] = {{.samples = 1,
                                   .forward = nanoseconds(10),
                                   .backward = nanoseconds(30),
                                   .backward_input = nanoseconds(12),
                                   .backward_weights = nanoseconds(16)}};
  schedule::Plan plan;
  plan.schedule.micro_batch_size = 2;
  plan.stages = {{0, 0}, {1, 2}};
  const std::vector<schedule::StageTime> stages = costs_of(model, nodes(2), plan).stages;
  EXPECT_EQ(stages[0].backward_input, stages[0].backward) << "its layer does not split";
  EXPECT_EQ(stages[0].backward_weights, nanoseconds(0));
  EXPECT_EQ(stages[1].backward_input, nanoseconds(24 + 4'000'000));
  EXPECT_EQ(stages[1].backward_weights, nanoseconds(32));
}

TEST(CostsOf, SurvivesAPlanOfAnotherModelAndUnknownPods) {
  schedule::Plan plan;
  plan.stages = {{0, 4}, {5, 9}};
  const PipelineCosts costs = costs_of(chain_of(2), nodes(1), plan);
  ASSERT_EQ(costs.stages.size(), 2U);
  EXPECT_EQ(costs.memory_limit[1], 0) << "unknown";
  EXPECT_TRUE(costs_of(Model{}, nodes(1), plan).stages.empty());
}

}  // namespace stage_costs_test
}  // namespace weir::planner
