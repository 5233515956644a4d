// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/waterfall.h"

#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace weir::explain {
namespace waterfall_test {

using namespace std::chrono_literals;
using protocol::PartSeconds;
using protocol::StepPart;

PartSeconds parts(std::initializer_list<std::pair<StepPart, double>> told) {
  PartSeconds parts;
  for (const auto& [part, seconds] : told) parts.seconds[static_cast<std::size_t>(part)] = seconds;
  return parts;
}

schedule::PipelineModel pipeline(int stages, std::chrono::nanoseconds transfer) {
  schedule::PipelineModel model;
  for (int s = 0; s < stages; ++s) model.stages.push_back({10ms, 20ms, 12ms, 9ms});
  for (int b = 0; b + 1 < stages; ++b) {
    model.forward.push_back({transfer, 0ms, {}});
    model.backward.push_back({transfer, 0ms, {}});
  }
  return model;
}

// Two equal stages, four micro-batches, one forward and one backward in turn.
Steps two_stages() {
  return {.step_seconds = 0.5,
          .schedule = {.k = 1, .micro_batch_size = 1, .caps = {2, 1}},
          .micro_batches = 4,
          .now = pipeline(2, 50ms),
          .usual = pipeline(2, 5ms),
          .parts = {parts({{StepPart::kOptimizer, 0.01}, {StepPart::kSum, 0.02}}), {}}};
}

double sum(const Waterfall& found) {
  return std::accumulate(found.seconds.begin(), found.seconds.end(), 0.0);
}

TEST(Waterfall, DividesAStepFromWhatAnyOrderNeedsToWhatThisOneWastes) {
  Steps steps = two_stages();
  steps.parts[0].seconds[static_cast<std::size_t>(StepPart::kData)] = 0.008;
  steps.parts[0].seconds[static_cast<std::size_t>(StepPart::kSwitch)] = 0.003;
  steps.parts[0].seconds[static_cast<std::size_t>(StepPart::kSave)] = 7;  // not of these steps

  const auto found = waterfall(steps);

  ASSERT_TRUE(found);
  EXPECT_EQ(found->slowest_stage, 0);
  EXPECT_NEAR(found->of(Line::kCompute), 0.112, 1e-9) << "4 x 30 ms, without loading data";
  EXPECT_NEAR(found->of(Line::kData), 0.008, 1e-9);
  EXPECT_NEAR(found->of(Line::kFillAndDrain), 0.030, 1e-9);
  EXPECT_NEAR(found->of(Line::kUsualLinks), 0.010, 1e-9) << "there and back of one micro-batch";
  EXPECT_NEAR(found->of(Line::kSlowLinks), 0.150, 1e-9) << "the link is busy all the time";
  EXPECT_NEAR(found->of(Line::kUpdate), 0.03, 1e-9);
  EXPECT_NEAR(found->of(Line::kInterruptions), 0.003, 1e-9);
  const auto simulated = schedule::simulate(steps.schedule, 4, steps.now);
  EXPECT_NEAR(found->of(Line::kOrder), 1e-9 * static_cast<double>(simulated->step.count()) - 0.31,
              1e-9);
  EXPECT_NEAR(sum(*found), 0.5, 1e-12);
}

TEST(Waterfall, AddsWhatSavesTakeToTheStep) {
  Steps steps = two_stages();
  const auto without = waterfall(steps);
  steps.save_seconds = 0.04;

  const auto found = waterfall(steps);

  EXPECT_NEAR(found->step_seconds, 0.54, 1e-12);
  EXPECT_NEAR(found->of(Line::kInterruptions), 0.04, 1e-12);
  EXPECT_NEAR(found->of(Line::kNotExplained), without->of(Line::kNotExplained), 1e-12);
  EXPECT_NEAR(sum(*found), 0.54, 1e-12);
}

TEST(Waterfall, SaysNothingOfWhatDoesNotFitTogether) {
  Steps steps = two_stages();
  steps.parts.pop_back();
  EXPECT_FALSE(waterfall(steps));
  steps = two_stages();
  steps.usual = pipeline(3, 5ms);
  EXPECT_FALSE(waterfall(steps));
  steps = two_stages();
  steps.step_seconds = 0;
  EXPECT_FALSE(waterfall(steps));
}

TEST(RankShares, ArePercentOfAllParts) {
  const RankShares shares = shares_of({.parts = parts({{StepPart::kForward, 3},
                                                       {StepPart::kOptimizer, 1},
                                                       {StepPart::kForwardLate, 2},
                                                       {StepPart::kGradientLink, 1},
                                                       {StepPart::kFullLink, 0.2},
                                                       {StepPart::kFullPeer, 0.3},
                                                       {StepPart::kSum, 1},
                                                       {StepPart::kVerdict, 0.5},
                                                       {StepPart::kOther, 1}})});
  EXPECT_EQ(shares.busy, 40);
  EXPECT_EQ(shares.late, 20);
  EXPECT_EQ(shares.link, 10);
  EXPECT_EQ(shares.full, 5);
  EXPECT_EQ(shares.replicas, 10);
  EXPECT_EQ(shares.update, 5);
  EXPECT_EQ(shares_of({}).busy, 0);
}

TEST(RankShares, TellThrottlingOfAtMostTheWholeStepAndOnlyWhereTheWorkerDoes) {
  protocol::SegmentRank rank{.parts = parts({{StepPart::kForward, 3}, {StepPart::kSum, 1}})};
  EXPECT_EQ(shares_of(rank).throttled, std::nullopt);
  rank.throttled_seconds = 1;
  EXPECT_EQ(shares_of(rank).throttled, 25);
  rank.throttled_seconds = 9;  // of all threads of the container
  EXPECT_EQ(shares_of(rank).throttled, 100);
}

// Where links are no faster than usual, no line but the last one is negative.
TEST(Waterfall, AddsUpForAnyPipelineWithoutNegativeLines) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int low, int high) {
      return std::uniform_int_distribution(low, high)(random);
    };
    const int stages = draw(1, 6), micro_batches = draw(1, 12), k = draw(1, 3);
    Steps steps;
    for (int s = 0; s < stages; ++s) {
      const auto part = std::chrono::microseconds(draw(500, 9000));
      const auto weights = std::chrono::microseconds(draw(500, 9000));
      steps.now.stages.push_back({std::chrono::microseconds(draw(500, 9000)),
                                  part + weights - std::chrono::microseconds(draw(0, 400)), part,
                                  weights});
    }
    steps.usual = steps.now;
    for (int b = 0; b + 1 < stages; ++b) {
      for (auto links : {&schedule::PipelineModel::forward, &schedule::PipelineModel::backward}) {
        const auto usual = std::chrono::microseconds(draw(0, 3000));
        const auto latency = std::chrono::microseconds(draw(0, 500));
        (steps.usual.*links).push_back({usual, latency, {}});
        (steps.now.*links).push_back({usual * draw(1, 9), latency, {}});
      }
    }
    steps.micro_batches = micro_batches;
    steps.schedule = {.k = k, .caps = schedule::kfkb_caps(stages, micro_batches, k)};
    steps.backwards = seed % 2 == 0 ? schedule::Backwards::kSplit : schedule::Backwards::kWhole;
    if (seed % 4 == 0) {
      steps.schedule.dispatch = schedule::Dispatch::kHint;
      steps.schedule.split =
          schedule::Split{.held = steps.schedule.caps,
                          .postponed = std::vector<int>(static_cast<std::size_t>(stages), 0)};
    }
    steps.step_seconds = 1e-3 * draw(1, 900);
    for (int s = 0; s < stages; ++s) {
      steps.parts.push_back(parts({{StepPart::kData, 1e-6 * draw(0, 900)},
                                   {StepPart::kOptimizer, 1e-6 * draw(0, 900)},
                                   {StepPart::kVerdict, 1e-6 * draw(0, 900)}}));
    }

    const auto found = waterfall(steps);

    ASSERT_TRUE(found) << "seed " << seed;
    EXPECT_NEAR(sum(*found), steps.step_seconds, 1e-9) << "seed " << seed;
    for (std::size_t i = 0; i + 1 < kLines; ++i) {
      EXPECT_GE(found->seconds[i], -1e-9) << "seed " << seed << " " << kLineNames[i];
    }
  }
}

}  // namespace waterfall_test
}  // namespace weir::explain
