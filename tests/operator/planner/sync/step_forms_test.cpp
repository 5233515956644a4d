// SPDX-License-Identifier: Apache-2.0
// Closed forms against the event simulator and the figures of tests/operator/planner/README.md.
#include "operator/planner/sync/step_forms.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "worker/base/random.h"
#include "worker/base/units.h"
#include "worker/schedule/simulator.h"

namespace weir::planner {
namespace step_forms_test {

Pipeline equal_stages(std::size_t stages, double f, double b, double c) {
  Pipeline pipeline;
  pipeline.stages.assign(stages, {.forward = f, .backward = b});
  pipeline.send_forward.assign(stages - 1, c);
  pipeline.send_backward = pipeline.send_forward;
  return pipeline;
}

schedule::PipelineModel model_of(const Pipeline& pipeline) {
  schedule::PipelineModel model;
  for (const StageCost& stage : pipeline.stages) {
    model.stages.push_back({from_seconds(stage.forward), from_seconds(stage.backward)});
  }
  for (std::size_t s = 0; s < pipeline.send_forward.size(); ++s) {
    schedule::LinkModel there, back;
    there.transfer = from_seconds(pipeline.send_forward[s]);
    back.transfer = from_seconds(pipeline.send_backward[s]);
    model.forward.push_back(there);
    model.backward.push_back(back);
  }
  return model;
}

double simulated(const Pipeline& pipeline, int micro_batches, int k) {
  schedule::Schedule schedule;
  schedule.dispatch = schedule::Dispatch::kStrict;
  schedule.k = k;
  schedule.caps = schedule::kfkb_caps(static_cast<int>(pipeline.stages.size()), micro_batches, k);
  return to_seconds(schedule::simulate(schedule, micro_batches, model_of(pipeline))->step);
}

Pipeline random_pipeline(Random& random) {
  const std::size_t stages = 2 + random.below(5);
  Pipeline pipeline = equal_stages(stages, 0, 0, 0);
  for (StageCost& stage : pipeline.stages) {
    stage = {.forward = 0.5 + 1.5 * random.uniform(), .backward = 0.8 + 3 * random.uniform()};
  }
  for (double& c : pipeline.send_forward) c = 4 * random.uniform() * random.uniform();
  pipeline.send_backward = pipeline.send_forward;
  return pipeline;
}

// Like period(), but with the longest bursts of the whole path s..q.
double path_period(const Pipeline& pipeline, int k) {
  const std::vector<StageCost>& stages = pipeline.stages;
  double result = period(pipeline, k);
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    double forward = stages[s].forward, backward = stages[s].backward;
    double loop = forward + backward;
    for (std::size_t q = s + 1; q < stages.size(); ++q) {
      const double there = pipeline.send_forward[q - 1], back = pipeline.send_backward[q - 1];
      loop += there + back + stages[q].forward + stages[q].backward;
      forward = std::max({forward, stages[q].forward, there});
      backward = std::max({backward, stages[q].backward, back});
      result = std::max(
          result, (loop + (k - 1) * (forward + backward)) / (k * static_cast<double>(q - s + 1)));
    }
  }
  return result;
}

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

TEST(Period, OfSlackCapsIsTheClosedFormOfSlack) {
  // max over loops of ((j+1)(f+b) + 2jc) / (jD+1): worker/schedule/README.md "Closed forms"
  const Pipeline pipeline = equal_stages(4, 1, 2, 3);
  EXPECT_NEAR(period(pipeline, 2, true), (4 * 3 + 6 * 3) / 7.0, 1e-9);
  EXPECT_NEAR(period(pipeline, 3, true), 3, 1e-9);
}

TEST(Period, WithLatencyTheLinkIsFreeAgainAtOnce) {
  Pipeline pipeline = equal_stages(2, 1, 2, 5);
  EXPECT_NEAR(period(pipeline, 8), 5.375, 1e-9) << "(16 + 7 (5 + 5)) / 16: the link is held";
  pipeline.hold_forward = pipeline.hold_backward = {0};
  EXPECT_NEAR(period(pipeline, 8), 3, 1e-9) << "a long way";
}

// tests/operator/planner/README.md "Simulated steps": four equal stages, M = 24.
TEST(Period, TableOfSimulatedSteps) {
  struct Row {
    double c, k1, k2, k3, k4, k6;
  };
  const Row rows[] = {{0, 27, 27, 27, 27, 27},
                      {0.1, 31, 27.6, 27.6, 27.6, 27.6},
                      {0.25, 37, 28.5, 28.5, 28.5, 28.5},
                      {0.5, 47, 31, 30.33, 30.5, 30.83},
                      {1, 67, 45, 41, 41, 44.33}};
  for (const Row& row : rows) {
    const Pipeline pipeline = equal_stages(4, 1.0 / 3, 2.0 / 3, row.c);
    EXPECT_NEAR(simulated(pipeline, 24, 1), row.k1, 0.005) << row.c;
    EXPECT_NEAR(simulated(pipeline, 24, 2), row.k2, 0.005) << row.c;
    EXPECT_NEAR(simulated(pipeline, 24, 3), row.k3, 0.005) << row.c;
    EXPECT_NEAR(simulated(pipeline, 24, 4), row.k4, 0.005) << row.c;
    EXPECT_NEAR(simulated(pipeline, 24, 6), row.k6, 0.005) << row.c;
  }
}

// V6: the path form is never below the simulated period and at most 1.5 % above where the run has
// settled; the local form is nearly always within 2.8 %, at worst 6 % off with very slow links.
TEST(Period, IsCloseToTheSimulatedOne) {
  constexpr int kFew = 192, kMany = 384;
  int close = 0, local_close = 0;
  constexpr int kRuns = 250;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    Random random(seed);
    const Pipeline pipeline = random_pipeline(random);
    const int k = 1 + static_cast<int>(random.below(4));
    const double measured =
        (simulated(pipeline, kMany, k) - simulated(pipeline, kFew, k)) / (kMany - kFew);
    const double path = path_period(pipeline, k), local = period(pipeline, k);

    EXPECT_GE(path, measured * (1 - 1e-6)) << "seed " << seed << " k " << k;
    EXPECT_GE(path, local * (1 - 1e-12));
    EXPECT_NEAR(local, measured, 0.07 * measured) << "seed " << seed << " k " << k;
    close += path <= measured * 1.015 ? 1 : 0;
    local_close += std::abs(local / measured - 1) <= 0.028 ? 1 : 0;
  }
  EXPECT_GE(close, kRuns * 97 / 100);
  EXPECT_GE(local_close, kRuns * 97 / 100);
}

// f = 1, b = 2, M = 32 on four stages: V is the step of the best order (343, 117), whether a link
// or a stage sets the pace.
TEST(Step, VCountsTheWholeWayAroundASlowInnerLink) {
  Pipeline pipeline{.stages = std::vector<StageCost>(4, {.forward = 1, .backward = 2}),
                    .send_forward = {0.25, 10, 0.25},
                    .send_backward = {0.25, 10, 0.25}};
  EXPECT_DOUBLE_EQ(step_forms(pipeline, 32, 1).bound, 343);
  pipeline.send_forward = pipeline.send_backward = {2, 2, 2};
  EXPECT_DOUBLE_EQ(step_forms(pipeline, 32, 1).bound, 117);
}

// V6: peak in flight and V.
TEST(Step, NoScheduleIsFasterThanV) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const Pipeline pipeline = random_pipeline(random);
    const int k = 1 + static_cast<int>(random.below(4));
    const int micro_batches = 1 + static_cast<int>(random.below(32));
    const int stages = static_cast<int>(pipeline.stages.size());
    schedule::Schedule schedule;
    schedule.dispatch = k == 1 ? schedule::Dispatch::kStrict : schedule::Dispatch::kHint;
    schedule.k = k;
    schedule.caps = schedule::kfkb_caps(stages, micro_batches, k);
    const auto timeline = schedule::simulate(schedule, micro_batches, model_of(pipeline));
    EXPECT_LE(step_forms(pipeline, micro_batches, k).bound, to_seconds(timeline->step) * (1 + 1e-8))
        << "seed " << seed;
    if (micro_batches >= 16) {
      EXPECT_LE(simulated(pipeline, micro_batches, k),
                step_forms(pipeline, micro_batches, k).sum * 1.12)
          << "seed " << seed;
    }

    schedule.dispatch = schedule::Dispatch::kStrict;
    EXPECT_EQ(schedule::simulate(schedule, micro_batches, model_of(pipeline))->peak_in_flight,
              schedule.caps)
        << "exactly min(M, k(S-s)) are in flight";
  }
}

TEST(Step, PivotFormIsCloserThanTheSum) {
  double pivot_error = 0, sum_error = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const Pipeline pipeline = random_pipeline(random);
    const int k = 2 + static_cast<int>(random.below(3));
    const double real = simulated(pipeline, 24, k);
    const StepForms forms = step_forms(pipeline, 24, k);
    pivot_error += std::abs(forms.pivot / real - 1);
    sum_error += std::abs(forms.sum / real - 1);
    EXPECT_GE(forms.pivot, 0.75 * real);
    EXPECT_LE(forms.pivot, 1.03 * real);
  }
  EXPECT_LT(pivot_error / 200, 0.03);
  EXPECT_LT(pivot_error, sum_error);
}

// Four stages, total work 4, M = 16, F = t/3.
TEST(Step, WithKFromTwoOnLaterStagesShouldBeLighter) {
  const Pipeline equal = equal_stages(4, 1.0 / 3, 2.0 / 3, 0);
  Pipeline lighter = equal;
  double sum = 0, t = 1;
  for (int s = 0; s < 4; ++s, t *= 1 - 1.0 / 16) sum += t;
  t = 4 / sum;
  for (StageCost& stage : lighter.stages) {
    stage = {.forward = t / 3, .backward = 2 * t / 3};
    t *= 1 - 1.0 / 16;
  }
  EXPECT_NEAR(simulated(equal, 16, 1), 19, 1e-3);
  EXPECT_NEAR(simulated(equal, 16, 2), 19, 1e-3);
  EXPECT_NEAR(simulated(lighter, 16, 1), 20.087, 1e-3);
  EXPECT_NEAR(simulated(lighter, 16, 2), 18.330, 1e-3);
  EXPECT_NEAR(step_forms(lighter, 16, 2).bound, 17.581, 1e-3);
  Pipeline slow = equal_stages(4, 1.0 / 3, 2.0 / 3, 0.25);
  EXPECT_NEAR(simulated(slow, 16, 3), 20.5, 1e-3);
  slow.stages = lighter.stages;
  EXPECT_NEAR(simulated(slow, 16, 3), 19.375, 1e-3);
}

TEST(UpdateTail, IsWhatLaterBackwardsDoNotHide) {
  Pipeline pipeline = equal_stages(3, 1, 2, 0.5);
  pipeline.stages[0].update = 1;
  pipeline.stages[2].update = 4;  // 0.5 + 2 + 0.5 + 2 = 5 s later stage 0 ends
  EXPECT_DOUBLE_EQ(update_tail(pipeline), 1);
  pipeline.stages[2].update = 7;
  EXPECT_DOUBLE_EQ(update_tail(pipeline), 2);
  EXPECT_DOUBLE_EQ(update_tail(equal_stages(2, 1, 1, 0)), 0);
}

}  // namespace step_forms_test
}  // namespace weir::planner
