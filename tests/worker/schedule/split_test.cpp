// SPDX-License-Identifier: Apache-2.0
// Schedules with a split backward (worker/schedule/README.md "Split backward"): steps of an
// independent simulator, what a split gains, strict orders, and invariants on random pipelines.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/schedule/plans_by_name.h"
#include "worker/base/random.h"
#include "worker/schedule/simulator.h"

namespace weir::schedule {
namespace split_test {

using std::chrono::nanoseconds;
using Values = std::vector<int>;
using Doubles = std::vector<double>;

Schedule split_schedule(Values caps, Values held, Values postponed) {
  Schedule schedule;
  schedule.k = k_of_caps(caps);
  schedule.caps = std::move(caps);
  schedule.split = Split{.held = std::move(held), .postponed = std::move(postponed)};
  return schedule;
}

struct Case {
  int micro_batches;
  Values forward, input, weights, forward_links, backward_links, caps, held, postponed;
  int step;
  Values peaks;
};

// Steps in integer times.
TEST(SplitSchedule, TakesTheStepOfAnIndependentSimulator) {
  const std::vector<Case> cases = {
      {14,
       {5, 4, 4, 5},
       {5, 4, 6, 3},
       {0, 0, 3, 1},
       {1, 0, 0},
       {2, 2, 0},
       {11, 10, 8, 7},
       {12, 14, 8, 8},
       {0, 0, 0, 0},
       194,
       {12, 11, 8, 8}},
      {1,
       {4, 3, 4, 5, 2},
       {4, 6, 2, 1, 0},
       {1, 0, 7, 1, 3},
       {6, 8, 1, 4},
       {3, 8, 4, 0},
       {1, 1, 1, 1, 1},
       {1, 1, 1, 1, 1},
       {1, 0, 1, 1, 1},
       66,
       {1, 1, 1, 1, 1}},
      {5, {3}, {2}, {0}, {}, {}, {1}, {1}, {0}, 25, {1}},
      {8, {4}, {1}, {3}, {}, {}, {1}, {3}, {3}, 64, {3}},
      {7, {4}, {4}, {1}, {}, {}, {2}, {2}, {0}, 63, {2}},
      {7, {5, 6}, {3, 2}, {0, 0}, {1}, {0}, {5, 3}, {6, 6}, {0, 1}, 65, {6, 6}},
      {11,
       {2, 1, 5, 3, 3},
       {8, 4, 1, 2, 5},
       {1, 0, 8, 2, 3},
       {0, 1, 0, 2},
       {2, 0, 0, 2},
       {11, 11, 9, 7, 4},
       {11, 11, 10, 7, 5},
       {0, 0, 0, 0, 0},
       158,
       {11, 11, 10, 7, 5}},
      {12,
       {4, 3, 4, 5, 4, 3},
       {3, 3, 4, 2, 4, 1},
       {1, 0, 0, 3, 5, 2},
       {3, 0, 1, 4, 6},
       {3, 0, 0, 2, 4},
       {10, 9, 6, 6, 3, 2},
       {10, 12, 8, 11, 11, 11},
       {0, 0, 0, 3, 0, 2},
       186,
       {10, 10, 8, 9, 11, 3}},
      {3,
       {1, 1, 4},
       {7, 0, 4},
       {0, 2, 0},
       {1, 7},
       {6, 0},
       {3, 2, 1},
       {3, 3, 3},
       {0, 0, 0},
       47,
       {3, 3, 3}},
      {2, {6}, {0}, {3}, {}, {}, {2}, {2}, {2}, 18, {2}},
      {2,
       {5, 5, 1, 3, 5},
       {0, 6, 0, 3, 2},
       {3, 3, 2, 2, 1},
       {4, 0, 5, 4},
       {3, 8, 2, 5},
       {2, 2, 2, 2, 1},
       {2, 2, 2, 2, 1},
       {0, 0, 0, 0, 0},
       73,
       {2, 2, 2, 2, 1}},
      {3, {4, 3}, {0, 0}, {2, 3}, {1}, {7}, {2, 1}, {3, 2}, {2, 3}, 39, {3, 2}},
      {2,
       {1, 3, 5},
       {2, 1, 2},
       {0, 5, 5},
       {2, 6},
       {3, 0},
       {2, 1, 1},
       {2, 1, 2},
       {0, 0, 0},
       47,
       {2, 1, 1}},
      {11, {2}, {2}, {3}, {}, {}, {3}, {3}, {0}, 77, {3}},
  };
  for (const Case& c : cases) {
    PipelineModel model;
    for (std::size_t s = 0; s < c.forward.size(); ++s) {
      model.stages.push_back({.forward = nanoseconds(c.forward[s]),
                              .backward_input = nanoseconds(c.input[s]),
                              .backward_weights = nanoseconds(c.weights[s])});
    }
    for (const int time : c.forward_links) model.forward.push_back({.transfer = nanoseconds(time)});
    for (const int time : c.backward_links) {
      model.backward.push_back({.transfer = nanoseconds(time)});
    }
    const auto line = simulate(split_schedule(c.caps, c.held, c.postponed), c.micro_batches, model);
    ASSERT_TRUE(line);
    EXPECT_EQ(line->step, nanoseconds(c.step));
    EXPECT_EQ(line->peak_in_flight, c.peaks);
  }
}

// f = 1, b = 2, of which W takes a part; links c.
PipelineModel split_model(const std::vector<double>& c, double weights) {
  PipelineModel model = test::equal_model(static_cast<int>(c.size()) + 1, c);
  for (StageTime& stage : model.stages) {
    stage.backward_weights = test::units(weights);
    stage.backward_input = stage.backward - stage.backward_weights;
  }
  return model;
}

double step_of(const Schedule& schedule, int micro_batches, const PipelineModel& model) {
  const auto line = simulate(schedule, micro_batches, model);
  return line ? static_cast<double>(line->step.count()) / 1e6 : -1;
}

std::vector<nanoseconds> times_of(const std::vector<LinkModel>& links) {
  std::vector<nanoseconds> times;
  for (const LinkModel& link : links) times.push_back(link.transfer);
  return times;
}

// The better of the most and of none postponed.
double best_of(const Values& caps, const Values& held, int micro_batches,
               const PipelineModel& model) {
  const Values most = most_postponed(model.stages, times_of(model.backward), caps, held);
  return std::min(
      step_of(split_schedule(caps, held, most), micro_batches, model),
      step_of(split_schedule(caps, held, Values(caps.size(), 0)), micro_batches, model));
}

// The table of the room's README. same: held as many as the caps; x0: as the cap of stage 0.
TEST(SplitSchedule, GainsWhatItsTableSays) {
  struct Row {
    std::vector<double> links;
    int micro_batches;
    Values caps;
    double whole, half_same, half_x0, third_same, third_x0;
  };
  const std::vector<Row> rows = {
      {{0, 0, 0}, 32, {4, 3, 2, 1}, 105, 102, 100, 103, 101},
      {{.5, .5, .5}, 32, {7, 5, 3, 1}, 108, 105, 100.5, 106, 102},
      {{.5, .5, .5}, 16, {7, 5, 3, 1}, 60, 57, 52.5, 58, 54},
      {{2, 2, 2}, 32, {10, 7, 4, 1}, 117, 114, 108, 115, 110.667},
      {std::vector<double>(7, .5), 32, {15, 13, 11, 9, 7, 5, 3, 1}, 124, 117, 106.5, 119.333, 110},
      {{.25, 2.5, .25}, 32, {8, 6, 3, 1}, 111.5, 108, 104, 109, 106}};
  for (const Row& row : rows) {
    const Values x0(row.caps.size(), row.caps.front());
    Schedule whole = test::with_caps(row.caps, Dispatch::kHint);
    whole.dispatch = dispatch_in_force(row.caps, whole.dispatch);
    const PipelineModel half = split_model(row.links, 1), third = split_model(row.links, 2. / 3);
    EXPECT_NEAR(step_of(whole, row.micro_batches, half), row.whole, 1e-3);
    EXPECT_NEAR(best_of(row.caps, row.caps, row.micro_batches, half), row.half_same, 1e-3);
    EXPECT_NEAR(best_of(row.caps, x0, row.micro_batches, half), row.half_x0, 1e-3);
    EXPECT_NEAR(best_of(row.caps, row.caps, row.micro_batches, third), row.third_same, 1e-3);
    EXPECT_NEAR(best_of(row.caps, x0, row.micro_batches, third), row.third_x0, 1e-3);
  }
}

TEST(SplitSchedule, PostponesWhatFitsIntoTheWayOfTheLastGradient) {
  const auto most = [](const PipelineModel& model, Values caps, Values held,
                       const std::vector<nanoseconds>& sums = {}) {
    return most_postponed(model.stages, times_of(model.backward), caps, held, sums);
  };
  const PipelineModel model = split_model({.5, .5, .5}, 1);
  EXPECT_EQ(most(model, {7, 5, 3, 1}, {7, 7, 7, 7}), (Values{0, 2, 4, 5}));
  EXPECT_EQ(most(model, {7, 5, 3, 1}, {7, 5, 3, 1}), (Values{0, 0, 0, 0}));
  const nanoseconds sums = test::units(2);
  EXPECT_EQ(most(model, {7, 5, 3, 1}, {7, 7, 7, 7}, {sums, sums, sums, sums}),
            (Values{0, 0, 2, 3}));
  EXPECT_EQ(most(split_model({.5, .5, .5}, 0), {7, 5, 3, 1}, {7, 7, 7, 7}), (Values{0, 0, 0, 0}));
}

struct RandomCase {
  Schedule schedule;
  int micro_batches = 1;
  PipelineModel model;
};

RandomCase random_case(std::uint64_t seed) {
  Random random(seed);
  const auto below = [&](int most) {
    return static_cast<int>(random.below(static_cast<std::uint64_t>(most)));
  };
  const int stages = 1 + below(7), micro_batches = 1 + below(20);
  Values caps(static_cast<std::size_t>(stages)), held, postponed;
  for (int& cap : caps) cap = 1 + below(micro_batches);
  std::sort(caps.rbegin(), caps.rend());
  for (const int cap : caps) {
    held.push_back(cap + below(micro_batches - cap + 1));
    postponed.push_back(below(micro_batches + 1));
  }
  RandomCase made{.schedule = split_schedule(caps, held, postponed),
                  .micro_batches = micro_batches};
  const auto time = [&](int most) { return nanoseconds(below(most)); };
  for (int s = 0; s < stages; ++s) {
    made.model.stages.push_back(
        {.forward = time(2000), .backward_input = time(2000), .backward_weights = time(3000)});
    if (s == 0) continue;
    made.model.forward.push_back({time(4000), time(500), {}});
    made.model.backward.push_back({time(4000), time(500), {}});
  }
  made.model.record = true;
  return made;
}

TEST(SplitSchedule, KeepsItsInvariantsOnAnyPlanAndPipeline) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    RandomCase made = random_case(seed);
    for (const Dispatch dispatch : {Dispatch::kHint, Dispatch::kStrict}) {
      made.schedule.dispatch = dispatch;
      const auto line = simulate(made.schedule, made.micro_batches, made.model);
      ASSERT_TRUE(line) << "seed " << seed << ": every op runs";
      std::vector<StageProgress> done(made.model.stages.size());
      for (const TimedOp& timed : line->ops) {
        const auto s = static_cast<std::size_t>(timed.stage);
        StageProgress& stage = done[s];
        int& count = timed.op.kind == OpKind::kForward    ? stage.forwards_started
                     : timed.op.kind == OpKind::kBackward ? stage.backwards_done
                                                          : stage.weights_done;
        ASSERT_EQ(timed.op.micro_batch, count++) << "seed " << seed << ": in order";
        ASSERT_LE(stage.weights_done, stage.backwards_done) << "seed " << seed;
        ASSERT_LE(stage.backwards_done, stage.forwards_started) << "seed " << seed;
        ASSERT_LE(stage.in_flight(), made.schedule.caps[s]) << "seed " << seed;
        ASSERT_LE(stage.held(), made.schedule.split->held[s]) << "seed " << seed;
      }
      for (const StageProgress& stage : done) EXPECT_EQ(stage.weights_done, made.micro_batches);
    }
  }
}

// A strict order is that of a simulated Hint. Where the times are those of the simulation the step
// is not longer; it is shorter where Hint postpones weights for something that comes later still.
TEST(SplitSchedule, OfStrictOrdersIsNotLongerThanTheOneThatMadeThem) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const RandomCase made = random_case(seed);
    const auto hint = simulate(made.schedule, made.micro_batches, made.model);
    const auto strict =
        simulate_orders(split_orders(made.schedule, made.micro_batches, made.model), made.model);
    ASSERT_TRUE(hint && strict) << "seed " << seed;
    EXPECT_LE(strict->step, hint->step) << "seed " << seed;
    EXPECT_EQ(strict->peak_in_flight, hint->peak_in_flight) << "seed " << seed;
  }
}

TEST(SplitSchedule, HasStrictOrdersThatNeedNoTimes) {
  Schedule schedule = split_schedule({2, 1}, {2, 2}, {0, 1});
  schedule.dispatch = Dispatch::kStrict;
  const auto kinds = [&](int stage) {
    std::string text;
    for (const Op& op : order_of(schedule, 2, stage, 3)) text += "FBW"[static_cast<int>(op.kind)];
    return text;
  };
  EXPECT_EQ(kinds(0), "FFBWFBWBW");
  EXPECT_EQ(kinds(1), "FBFBWFBWW");
}

// Late stages make weight gradients while the first one is in the next step already.
TEST(SplitSchedule, FollowsTheNextStepSoonerThanItEnds) {
  constexpr int kMicroBatches = 16;
  PipelineModel model = test::model_of(Doubles(8, 10), Doubles(8, 20), Doubles(7, 5));
  for (StageTime& stage : model.stages) {
    stage.backward_input = stage.backward_weights = stage.backward / 2;
  }
  model.record = true;
  const auto timeline = [&](const std::string& plan) {
    return *simulate(test::schedule_named(plan, kMicroBatches, model), kMicroBatches, model);
  };
  const Timeline split = timeline("hintlean+x0"), whole = timeline("hintlean");
  EXPECT_EQ(split.step, test::units(585));
  EXPECT_EQ(period_of(split), test::units(570));
  EXPECT_EQ(period_of(whole), whole.step);
}

}  // namespace split_test
}  // namespace weir::schedule
