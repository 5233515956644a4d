// SPDX-License-Identifier: Apache-2.0
// Closed forms and invariants (worker/schedule/README.md "Closed forms", "Invariants") on random
// pipelines. A failing case prints its seed.
#include "worker/schedule/simulator.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::schedule {
namespace simulator_test {

using std::chrono::nanoseconds;

PipelineModel equal_stages(int stages, double f, double b, double c, bool latency) {
  PipelineModel model;
  const auto ticks = [](double v) { return nanoseconds(static_cast<std::int64_t>(v * 1e6)); };
  model.stages.assign(static_cast<std::size_t>(stages), {ticks(f), ticks(b)});
  LinkModel link;
  (latency ? link.latency : link.transfer) = ticks(c);
  model.forward.assign(static_cast<std::size_t>(stages - 1), link);
  model.backward = model.forward;
  return model;
}

PipelineModel random_pipeline(Random& random, int stages, double most_c) {
  PipelineModel model = equal_stages(stages, 1, 1, 0, false);
  const auto ticks = [&](double low, double high) {
    return nanoseconds(static_cast<std::int64_t>(1e6 * (low + (high - low) * random.uniform())));
  };
  for (StageTime& stage : model.stages) stage = {ticks(0.5, 2), ticks(0.5, 4)};
  for (LinkModel& link : model.forward) link = {ticks(0, most_c), ticks(0, 0.2), {}};
  for (LinkModel& link : model.backward) link = {ticks(0, most_c), ticks(0, 0.2), {}};
  return model;
}

Schedule plan_of(std::vector<int> caps, Dispatch dispatch) {
  Schedule schedule;
  schedule.dispatch = dispatch;
  schedule.k = k_of_caps(caps);
  schedule.caps = std::move(caps);
  return schedule;
}

double step_of(const Schedule& schedule, int micro_batches, const PipelineModel& model) {
  const auto timeline = simulate(schedule, micro_batches, model);
  EXPECT_TRUE(timeline.has_value());
  return timeline ? static_cast<double>(timeline->step.count()) / 1e6 : 0;
}

double period_of(const Schedule& few, const Schedule& many, int a, int b,
                 const PipelineModel& model) {
  return (step_of(many, b, model) - step_of(few, a, model)) / (b - a);
}

// P = max(f+b, max_j [(j+k)(f+b) + 2jc] / ((j+1)k)); slack: [(j+1)(f+b) + 2jc] / (jD+1).
double closed_form(int stages, int k, double t, double c, bool slack) {
  double period = t;
  for (int j = 1; j < stages; ++j) {
    period = std::max(period, slack ? ((j + 1) * t + 2 * j * c) / (j * k + 1)
                                    : ((j + k) * t + 2 * j * c) / ((j + 1) * k));
  }
  return period;
}

TEST(Simulator, PeriodIsTheClosedForm) {
  constexpr int kStages = 4, kFew = 240, kMany = 480;
  for (const double c : {0.0, 0.5, 1.0, 2.0, 4.0, 6.0}) {
    const PipelineModel model = equal_stages(kStages, 1, 2, c, true);
    for (const int k : {1, 2, 3, 4}) {
      const double grouped =
          period_of(plan_of(kfkb_caps(kStages, kFew, k), Dispatch::kStrict),
                    plan_of(kfkb_caps(kStages, kMany, k), Dispatch::kStrict), kFew, kMany, model);
      EXPECT_NEAR(grouped / closed_form(kStages, k, 3, c, false), 1, 0.002) << k << " " << c;
      const double slack =
          period_of(plan_of(slack_caps(kStages, kFew, k), Dispatch::kStrict),
                    plan_of(slack_caps(kStages, kMany, k), Dispatch::kStrict), kFew, kMany, model);
      EXPECT_NEAR(slack / closed_form(kStages, k, 3, c, true), 1, 0.002) << k << " " << c;
    }
  }
}

TEST(Simulator, NothingIsLostWhileTransfersAreHidden) {
  // T = ideal + 2 (S-1) c while c <= (k-1)(f+b)/2: 105 + 6c.
  for (const double c : {0.1, 0.25, 0.5, 0.75, 1.0}) {
    const PipelineModel model = equal_stages(4, 1, 2, c, false);
    EXPECT_NEAR(step_of(plan_of(kfkb_caps(4, 32, 2), Dispatch::kStrict), 32, model), 105 + 6 * c,
                1e-9);
    EXPECT_NEAR(step_of(plan_of(slack_caps(4, 32, 2), Dispatch::kHint), 32, model), 105 + 6 * c,
                1e-9);
  }
}

TEST(Simulator, PeakOfKfkbIsItsCapsOnAnyPipeline) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const int S = 2 + static_cast<int>(random.below(7)), M = 1 + static_cast<int>(random.below(24));
    const int k = 1 + static_cast<int>(random.below(4));
    const PipelineModel model = random_pipeline(random, S, 6);

    const auto timeline = simulate(plan_of(kfkb_caps(S, M, k), Dispatch::kStrict), M, model);

    ASSERT_TRUE(timeline.has_value()) << "seed " << seed;
    EXPECT_EQ(timeline->peak_in_flight, kfkb_caps(S, M, k)) << "seed " << seed;
  }
}

TEST(Simulator, NeverGoesBeyondTheCaps) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const int S = 2 + static_cast<int>(random.below(7)), M = 1 + static_cast<int>(random.below(24));
    std::vector<int> caps(static_cast<std::size_t>(S));
    for (int& cap : caps) cap = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(M)));
    std::sort(caps.rbegin(), caps.rend());
    const PipelineModel model = random_pipeline(random, S, 6);

    for (const Dispatch dispatch : {Dispatch::kHint, Dispatch::kStrict}) {
      const auto timeline = simulate(plan_of(caps, dispatch), M, model);
      ASSERT_TRUE(timeline.has_value()) << "seed " << seed;
      for (std::size_t s = 0; s < caps.size(); ++s)
        EXPECT_LE(timeline->peak_in_flight[s], caps[s]) << "seed " << seed;
    }
  }
}

TEST(Simulator, NoLegalPlanDeadlocksEvenWithBlockingSends) {
  for (int S = 2; S <= 8; ++S)
    for (int k = 1; k <= 4; ++k)
      for (const Dispatch dispatch : {Dispatch::kHint, Dispatch::kStrict}) {
        PipelineModel model = equal_stages(S, 1, 2, 1.5, false);
        model.window = 0;
        EXPECT_TRUE(simulate(plan_of(kfkb_caps(S, 13, k), dispatch), 13, model).has_value());
        EXPECT_TRUE(simulate(plan_of(slack_caps(S, 13, k), dispatch), 13, model).has_value());
      }
}

TEST(Simulator, HintIsAtMostTwoPercentWorseFromK2On) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const int S = 2 + static_cast<int>(random.below(7));
    const int M = 8 + static_cast<int>(random.below(25)), k = 2 + static_cast<int>(random.below(3));
    const PipelineModel model = random_pipeline(random, S, 4);
    const std::vector<int> caps = kfkb_caps(S, M, k);

    const double hint = step_of(plan_of(caps, Dispatch::kHint), M, model);
    const double strict = step_of(plan_of(caps, Dispatch::kStrict), M, model);

    EXPECT_LE(hint, 1.02 * strict) << "seed " << seed << " S=" << S << " M=" << M << " k=" << k;
  }
}

// I1, I2, I4 on any plan and pipeline: ops in micro-batch order, one at a time, none before its
// input; messages in order, one at a time; the last backward ends the step.
void expect_invariants(const Timeline& timeline, const std::vector<int>& caps, int micro_batches,
                       std::uint64_t seed) {
  const std::size_t stages = caps.size();
  struct Stage {
    int forwards = 0, backwards = 0;
    nanoseconds free{0};
  };
  std::vector<Stage> done(stages);
  const auto arrival = [&](int boundary, bool forward, int micro_batch) {
    for (const TimedSend& send : timeline.sends)
      if (send.boundary == boundary && send.forward == forward && send.micro_batch == micro_batch)
        return send.arrival;
    return nanoseconds::max();
  };
  nanoseconds last{0};
  for (const TimedOp& timed : timeline.ops) {
    Stage& stage = done[static_cast<std::size_t>(timed.stage)];
    const bool forward = timed.op.kind == OpKind::kForward;
    EXPECT_GE(timed.start, stage.free) << "seed " << seed << ": one op at a time";
    stage.free = timed.end;
    last = std::max(last, timed.end);
    EXPECT_EQ(timed.op.micro_batch, forward ? stage.forwards : stage.backwards) << "seed " << seed;
    ++(forward ? stage.forwards : stage.backwards);
    EXPECT_LE(stage.forwards - stage.backwards, caps[static_cast<std::size_t>(timed.stage)]);
    const int source = forward ? timed.stage - 1 : timed.stage;  // boundary of its input
    if (source < 0 || source + 1 == static_cast<int>(stages)) continue;
    EXPECT_GE(timed.start, arrival(source, forward, timed.op.micro_batch)) << "seed " << seed;
  }
  for (const Stage& stage : done) {
    EXPECT_EQ(stage.forwards, micro_batches);
    EXPECT_EQ(stage.backwards, micro_batches);
  }
  EXPECT_EQ(last, timeline.step);
  std::map<std::pair<int, bool>, std::pair<int, nanoseconds>> links;  // messages, free
  for (const TimedSend& send : timeline.sends) {
    auto& [messages, free] = links[{send.boundary, send.forward}];
    EXPECT_EQ(send.micro_batch, messages++) << "seed " << seed;
    EXPECT_GE(send.start, free) << "seed " << seed;
    free = send.end;
  }
}

TEST(Simulator, KeepsItsInvariantsOnAnyPlanAndPipeline) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const int S = 2 + static_cast<int>(random.below(6)), M = 1 + static_cast<int>(random.below(16));
    std::vector<int> caps(static_cast<std::size_t>(S));
    for (int& cap : caps) cap = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(M)));
    std::sort(caps.rbegin(), caps.rend());
    PipelineModel model = random_pipeline(random, S, 6);
    model.record = true;
    for (LinkModel& link : model.forward) {  // preempted and free in turns
      for (int i = 0; i < 20; ++i)
        link.trace.emplace_back(nanoseconds(3'000'000 * i), i % 2 == 0 ? 0.2 : 1.0);
    }
    for (const Dispatch dispatch : {Dispatch::kHint, Dispatch::kStrict}) {
      const auto timeline = simulate(plan_of(caps, dispatch), M, model);
      ASSERT_TRUE(timeline.has_value()) << "seed " << seed;
      expect_invariants(*timeline, caps, M, seed);
    }
  }
}

TEST(Simulator, AnIllegalScheduleNeverEnds) {
  const PipelineModel model = equal_stages(2, 1, 2, 0, false);
  EXPECT_FALSE(simulate(plan_of({1, 2}, Dispatch::kStrict), 4, model).has_value());
}

TEST(Simulator, BusyAndIdleAddUpToTheStep) {
  const PipelineModel model = equal_stages(4, 1, 2, 1.5, false);
  const auto timeline = simulate(plan_of(kfkb_caps(4, 16, 1), Dispatch::kStrict), 16, model);
  ASSERT_TRUE(timeline.has_value());

  for (const nanoseconds busy : timeline->busy) EXPECT_EQ(busy, nanoseconds(48'000'000));
  // Stage 0 runs the first and the last op.
  EXPECT_EQ(timeline->busy[0] + timeline->idle[0].wait_forward + timeline->idle[0].wait_backward,
            timeline->step);
  EXPECT_EQ(timeline->idle[0].wait_forward, nanoseconds(0)) << "its input is always there";
  EXPECT_GT(timeline->idle[0].wait_backward, nanoseconds(0));
  EXPECT_GT(timeline->idle[3].wait_forward, nanoseconds(0));
  EXPECT_EQ(timeline->idle[3].wait_backward, nanoseconds(0)) << "its gradient is its own";
}

TEST(Simulator, ATransferSlowsDownWithTheShare) {
  PipelineModel model = equal_stages(2, 1, 2, 4, false);
  const double free = step_of(plan_of({1, 1}, Dispatch::kStrict), 1, model);
  // Forward from 1 ms on: 1 ms at share 1, then 4 ms at .5, then 1 ms at 1: 6 ms instead of 4.
  model.forward[0].trace = {{nanoseconds(2'000'000), 0.5}, {nanoseconds(6'000'000), 1.0}};
  EXPECT_NEAR(step_of(plan_of({1, 1}, Dispatch::kStrict), 1, model), free + 2, 1e-9);
  // The trace goes on from where the step starts.
  model.start = nanoseconds(6'000'000);
  EXPECT_NEAR(step_of(plan_of({1, 1}, Dispatch::kStrict), 1, model), free, 1e-9);
}

TEST(Simulator, DirectionsAreModelledApart) {
  PipelineModel model = equal_stages(2, 1, 2, 0, false);
  model.backward[0].transfer = nanoseconds(5'000'000);
  EXPECT_NEAR(step_of(plan_of({1, 1}, Dispatch::kStrict), 1, model), 6 + 5, 1e-9);
}

TEST(Simulator, GivenOrdersRunStrict) {
  const PipelineModel model = equal_stages(3, 1, 2, 0.5, false);
  std::vector<Order> orders;
  for (int s = 0; s < 3; ++s) orders.push_back(kfkb_order(3, s, 6, 2));

  const auto timeline = simulate_orders(orders, model);

  ASSERT_TRUE(timeline.has_value());
  EXPECT_EQ(timeline->step, nanoseconds(26'000'000));
  EXPECT_EQ(timeline->peak_in_flight, (std::vector{6, 4, 2}));
}

TEST(Simulator, OneStageNeedsNoLink) {
  const PipelineModel model = equal_stages(1, 1, 2, 0, false);
  EXPECT_NEAR(step_of(plan_of({1}, Dispatch::kStrict), 5, model), 15, 1e-9);
}

}  // namespace simulator_test
}  // namespace weir::schedule
