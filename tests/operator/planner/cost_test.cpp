// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/cost.h"

#include <gtest/gtest.h>

#include "worker/base/random.h"
#include "worker/base/units.h"
#include "worker/schedule/simulator.h"

namespace weir::planner {
namespace {

Pipeline equal_stages(std::size_t stages, double f, double b, double c) {
  Pipeline pipeline;
  pipeline.stages.assign(stages, {.forward = f, .backward = b});
  pipeline.send_forward.assign(stages - 1, c);
  pipeline.send_backward = pipeline.send_forward;
  return pipeline;
}

// Values of planner.md 2.2.
TEST(Period, OfEqualStagesWithTransfersAsLongAsAStage) {
  const Pipeline pipeline = equal_stages(4, 1.0 / 3, 2.0 / 3, 1);
  EXPECT_NEAR(period(pipeline, 2), 1.5, 1e-9);
  EXPECT_NEAR(period(pipeline, 3), 1.3333, 1e-4);
  EXPECT_NEAR(period(pipeline, 4), 1.25, 1e-9);
  EXPECT_NEAR(period(pipeline, 6), 1.1667, 1e-4);
}

TEST(Period, Of1F1BIsTheHeaviestWindow) {
  Pipeline pipeline = equal_stages(4, 1, 2, 0.5);
  EXPECT_NEAR(period(pipeline, 1), 3 + 2 * 0.5 * 3 / 4, 1e-9);  // f+b + 2c(S-1)/S
  pipeline.stages[2] = {.forward = 3, .backward = 6};
  EXPECT_NEAR(period(pipeline, 1), 9, 1e-9);
}

TEST(Period, IsCloseToTheSimulatedOne) {
  constexpr int kFew = 64, kMany = 128;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const std::size_t stages = 2 + random.below(5);
    const int k = 1 + static_cast<int>(random.below(4));
    Pipeline pipeline = equal_stages(stages, 0, 0, 0);
    schedule::PipelineModel model;
    for (StageCost& stage : pipeline.stages) {
      stage = {.forward = 0.5 + random.uniform(), .backward = 0.8 + 2 * random.uniform()};
      model.stages.push_back({from_seconds(stage.forward), from_seconds(stage.backward)});
    }
    for (double& c : pipeline.send_forward) c = 2 * random.uniform();
    pipeline.send_backward = pipeline.send_forward;
    for (const double c : pipeline.send_forward) model.forward.push_back({from_seconds(c)});
    model.backward = model.forward;
    const auto step = [&](int micro_batches) {
      schedule::Schedule schedule;
      schedule.dispatch = schedule::Dispatch::kStrict;
      schedule.caps = schedule::kfkb_caps(static_cast<int>(stages), micro_batches, k);
      return to_seconds(schedule::simulate(schedule, micro_batches, model)->step);
    };

    const double simulated = (step(kMany) - step(kFew)) / (kMany - kFew);

    EXPECT_NEAR(period(pipeline, k) / simulated, 1, 0.035) << "seed " << seed << " k=" << k;
  }
}

TEST(StepSeconds, IsOneRoundTripAndTheOtherPeriods) {
  const Pipeline pipeline = equal_stages(4, 1, 2, 0);
  EXPECT_NEAR(step_seconds(pipeline, {.stages = 4, .micro_batches = 32}), 105, 1e-9);
}

TEST(UpdateTail, IsHiddenBehindTheBackwardsOfEarlierStages) {
  Pipeline pipeline = equal_stages(3, 1, 2, 0.5);
  for (StageCost& stage : pipeline.stages) stage.update = 0.25;
  EXPECT_NEAR(update_tail(pipeline), 0.25, 1e-9) << "stage 0 ends last";
  pipeline.stages[2].update = 7;  // 2 x (2 + 0.5) behind it
  EXPECT_NEAR(update_tail(pipeline), 2, 1e-9);
}

}  // namespace
}  // namespace weir::planner
