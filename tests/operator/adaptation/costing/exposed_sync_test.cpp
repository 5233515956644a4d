// SPDX-License-Identifier: Apache-2.0
// The cost of slow links between replicas.
#include "operator/adaptation/costing/exposed_sync.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "operator/planner/model/profile_json.h"
#include "tests/operator/controller/reconcile/equal_layers.h"
#include "worker/base/units.h"

namespace weir::costing {
namespace exposed_sync_test {

using namespace std::chrono_literals;

TEST(ExposedSync, IsTheSlowestStagesSumLessWhatItsOwnAndTheStagesBeforeItStillCompute) {
  const auto model = *planner::decode_profile(reconcile::test::equal_layers(4, 2'000'000, 10'000));
  schedule::Plan plan;
  plan.stages = {{0, 0}, {1, 3}};
  plan.micro_batches = {4, 4};
  for (int r = 0; r < 2; ++r) {
    for (int s = 0; s < 2; ++s) {
      const std::string node = "n" + std::to_string(2 * r + s);
      plan.ranks.push_back({.pod = node, .node = node, .replica = r, .stage = s});
    }
  }
  SumLinks links;
  links.cluster.default_bytes_per_second = 1e8;
  const std::vector<schedule::StageTime> stages(2, {from_seconds(0.01), from_seconds(0.02)});
  // 3 x 1/2 x 6 MB at 100 MB/s, less one backward of stage 0, and that of two of its three layers.
  constexpr double kHidden = 0.02 + 0.02 * 2 / 3;
  EXPECT_NEAR(modelled_exposed_sync(plan, model, links, stages), 0.09 - kHidden, 1e-8);

  links.cluster.links.push_back({"n2", "n0", 1e7, {}});
  EXPECT_NEAR(modelled_exposed_sync(plan, model, links, stages), 0.3, 1e-9) << "one way is enough";
  links.cluster.links.push_back({"n0", "n3", 1e3, {}});
  EXPECT_NEAR(modelled_exposed_sync(plan, model, links, stages), 0.3, 1e-9)
      << "nothing sums over that link";

  links.most = 2e7;
  links.cluster.links.clear();
  EXPECT_NEAR(modelled_exposed_sync(plan, model, links, stages), 0.45 - kHidden, 1e-8)
      << "nothing is faster";

  links.packed_part = 0.5;
  EXPECT_NEAR(modelled_exposed_sync(plan, model, links, stages), 0.3 - kHidden, 1e-8)
      << "doubles are two thirds of the bytes";
  links.most = 3e8;  // too fast to be packed
  links.cluster.default_bytes_per_second = 3e8;
  EXPECT_NEAR(modelled_exposed_sync(plan, model, links, stages), 0.01, 1e-9) << "that of stage 0";

  plan.sync.mode = schedule::SyncMode::kPartial;
  EXPECT_EQ(modelled_exposed_sync(plan, model, links, stages), 0);
  plan.sync.mode = schedule::SyncMode::kExact;
  plan.micro_batches = {8};
  EXPECT_EQ(modelled_exposed_sync(plan, model, links, stages), 0);
}

// The last layers set out first, and the sum goes on behind the slower of the two.
TEST(ExposedSync, WhatIsLeftOfASumDependsOnWhereTheBytesAre) {
  auto model = *planner::decode_profile(reconcile::test::equal_layers(2, 2'000'000, 10'000));
  for (planner::Layer& layer : model.layers) {
    for (auto& [device_class, times] : layer.times) {
      for (planner::LayerTime& time : times) {
        time.backward_input = time.backward_weights = time.backward / 2;
      }
    }
  }
  schedule::Plan plan;
  plan.stages = {{0, 1}};
  plan.micro_batches = {4, 4};
  for (int r = 0; r < 2; ++r) {
    const std::string node = "n" + std::to_string(r);
    plan.ranks.push_back({.pod = node, .node = node, .replica = r, .stage = 0});
  }
  SumLinks links;
  links.cluster.default_bytes_per_second = 1e8;  // 30 ms a layer
  const auto left = [&](std::chrono::nanoseconds backward, std::chrono::nanoseconds weights) {
    return modelled_sums(plan, model, links, {{from_seconds(0.01), backward, {}, weights}});
  };
  EXPECT_EQ(left(200ms, 100ms).after_backward.front(), 30ms) << "the other layer is through";
  EXPECT_EQ(left(200ms, 100ms).after_weights.front(), 30ms);
  EXPECT_EQ(left(20ms, 10ms).after_backward.front(), 50ms);
  EXPECT_EQ(left(20ms, 10ms).after_weights.front(), 55ms);
  EXPECT_EQ(left(0ms, 0ms).after_backward.front(), 60ms);
  model.layers[0].parameter_bytes = 0;
  EXPECT_EQ(left(40ms, 20ms).after_backward.front(), 10ms);
  EXPECT_EQ(left(40ms, 20ms).after_weights.front(), 20ms);
  EXPECT_EQ(left(80ms, 40ms).after_backward.front(), 0ms);
}

TEST(ExposedSync, WhatIsMeasuredChangesByWhatTheLinksExplain) {
  EXPECT_DOUBLE_EQ(changed_exposed_sync(0.5, 0.4, 0.4), 0.5);
  EXPECT_DOUBLE_EQ(changed_exposed_sync(0.5, 0.4, 0.1), 0.2) << "0.1 s of it has another cause";
  EXPECT_DOUBLE_EQ(changed_exposed_sync(0.2, 0.4, 0.1), 0.05) << "half of what was expected";
  EXPECT_DOUBLE_EQ(changed_exposed_sync(0.2, 0.4, 0.5), 0.3);
  EXPECT_DOUBLE_EQ(changed_exposed_sync(0, 0, 0.3), 0.3);
}

}  // namespace exposed_sync_test
}  // namespace weir::costing
