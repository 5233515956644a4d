// SPDX-License-Identifier: Apache-2.0
// Batches and replicas that cannot be: the answer names the field.
#include <gtest/gtest.h>

#include "operator/planner/plan.h"

namespace weir::planner {
namespace setting_test {

// Two layers on two devices.
std::string refusal(const Request& request) {
  Model model;
  Cluster cluster;
  for (const char* name : {"a", "b"}) {
    Layer layer;
    layer.id = name;
    layer.times["cpu"] = {{1, std::chrono::milliseconds(1), std::chrono::milliseconds(2)}};
    model.layers.push_back(layer);
    Device device;
    device.node = device.pod = name;
    device.device_class = "cpu";
    cluster.devices.push_back(device);
  }
  const auto report = plan(model, cluster, request);
  return report ? "planned" : report.error().message;
}

TEST(Setting, ABatchMustHaveASampleForEachReplica) {
  Request request;
  request.global_batch = 1;
  request.data_parallel = 2;
  EXPECT_EQ(refusal(request), "batch.globalBatchSize: 1 is too small for 2 replicas");
  request.global_batch = 4;
  EXPECT_EQ(refusal(request), "planned");
  request.micro_batch_size = 4;
  EXPECT_EQ(refusal(request),
            "batch.microBatchSize: 4 leaves no micro-batch for one of 2 replicas");
}

TEST(Setting, ReplicasMustHaveARankEach) {
  Request request;
  request.global_batch = 6;
  request.data_parallel = 3;
  EXPECT_EQ(refusal(request), "parallelism.dataParallel: 3 needs as many ranks, 2 are there");
  request.data_parallel = 0;
  EXPECT_EQ(refusal(request), "parallelism.dataParallel: below 1");
}

}  // namespace setting_test
}  // namespace weir::planner
