// SPDX-License-Identifier: Apache-2.0
// The model of steps against the simulator of schedules, where both claim the same, and its books.
#include "tests/sim/step_world.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "worker/base/units.h"
#include "worker/schedule/simulator.h"

namespace weir::sim {
namespace step_world_test {

schedule::Plan plan_of(int stages, int replicas, int micro_batches, int k) {
  schedule::Plan plan;
  plan.revision = 1;
  plan.schedule = {.k = k, .caps = schedule::kfkb_caps(stages, micro_batches, k)};
  plan.schedule.dispatch =
      schedule::dispatch_in_force(plan.schedule.caps, schedule::Dispatch::kHint);
  for (int s = 0; s < stages; ++s) plan.stages.push_back({s, s});
  for (int r = 0; r < replicas; ++r) {
    plan.micro_batches.push_back(micro_batches);
    for (int s = 0; s < stages; ++s) plan.ranks.push_back({.replica = r, .stage = s});
  }
  return plan;
}

// Without chance, latency and update.
StepShape shape_of(const schedule::Plan& plan) {
  StepShape shape{.jitter = 0, .latency = 0, .optimizer = 0, .save_every = 1000};
  for (const auto& rank : plan.ranks) {
    shape.forward.push_back(0.02);
    shape.backward.push_back(0.04);
    if (rank.stage + 1 == plan.stage_count()) continue;
    for (auto& links : shape.links) links.push_back(0.004);
  }
  for (int s = 0; s < plan.stage_count(); ++s) shape.sums.push_back(0);
  return shape;
}

double step_of(StepWorld& world) {
  const double begin = world.time();
  world.step();
  return world.time() - begin;
}

double simulated(const schedule::Plan& plan, const StepShape& shape) {
  schedule::PipelineModel model;
  for (int s = 0; s < plan.stage_count(); ++s) {
    const auto i = static_cast<std::size_t>(s);
    model.stages.push_back({from_seconds(shape.forward[i]), from_seconds(shape.backward[i])});
    if (s + 1 == plan.stage_count()) continue;
    model.forward.push_back({from_seconds(shape.links[0][i]), {}, {}});
    model.backward.push_back({from_seconds(shape.links[1][i]), {}, {}});
  }
  return to_seconds(schedule::simulate(plan.schedule, plan.micro_batches[0], model)->step);
}

TEST(StepWorld, AgreesWithTheSimulatorOfSchedules) {
  constexpr double kCredits = 0.03;  // which the simulator does not have
  for (const int k : {1, 2, 4}) {
    for (int stages = 2; stages <= 8; ++stages) {
      const schedule::Plan plan = plan_of(stages, 1, 16, k);
      for (const double slow : {0.004, 0.02, 0.05, 0.1}) {
        for (const bool forward : {true, false}) {
          StepShape shape = shape_of(plan);
          shape.links[forward ? 0 : 1][0] = slow;
          StepWorld world(plan, shape, 1);
          const double own = step_of(world), other = simulated(plan, shape);
          EXPECT_NEAR(own / other, 1, slow < 0.1 ? 0.004 : kCredits)
              << "k " << k << ", " << stages << " stages, link at " << slow;
        }
      }
    }
  }
}

// So nobody needs to be told that receivers were full: ranks grant as many slots as any order of
// their plan fills (schedule::credits_of). Fewer do cost, where an order is strict.
TEST(StepWorld, MoreReceiveSlotsThanRanksGrantSaveNothing) {
  constexpr double kUnlimited = 1000, kNoise = 0.01, kWorthTelling = 0.05;
  const auto seconds = [](const schedule::Plan& plan, const StepShape& shape, double slots) {
    StepWorld world(plan, shape, 1);
    for (int b = 0; slots > 0 && b + 1 < plan.stage_count(); ++b) {
      world.plant({.kind = FaultKind::kCredits, .stage = b, .size = slots});
    }
    for (int i = 0; i < 10; ++i) world.step();
    return world.time();
  };
  double most_of_one = 0;
  for (int k = 1; k <= 8; ++k) {
    for (const auto dispatch : {schedule::Dispatch::kStrict, schedule::Dispatch::kHint}) {
      for (const double slow : {0.004, 0.02, 0.05, 0.1, 0.3}) {
        schedule::Plan plan = plan_of(4, 1, 16, k);
        plan.schedule.dispatch = schedule::dispatch_in_force(plan.schedule.caps, dispatch);
        StepShape shape = shape_of(plan);
        shape.jitter = 0.05;
        shape.links[0][1] = slow;
        const double granted = seconds(plan, shape, 0);
        EXPECT_LE(granted / seconds(plan, shape, kUnlimited) - 1, kNoise) << k << " " << slow;
        most_of_one = std::max(most_of_one, seconds(plan, shape, 1) / granted - 1);
      }
    }
  }
  EXPECT_GE(most_of_one, kWorthTelling);
}

TEST(StepWorld, BooksAllTimeOfEachRank) {
  const schedule::Plan plan = plan_of(4, 2, 8, 1);
  StepShape shape = shape_of(plan);
  shape.jitter = 0.05;
  shape.latency = 1e-4;
  shape.optimizer = shape.save = 0.01;
  shape.save_every = 3;
  shape.sums.assign(4, 0.05);
  StepWorld world(plan, shape, 7);
  world.plant({.kind = FaultKind::kPauses, .replica = 1, .stage = 2, .size = 0.1, .every = 0.5});
  world.plant({.kind = FaultKind::kCredits, .stage = 1, .size = 1});
  world.plant({.kind = FaultKind::kData, .stage = 3, .size = 0.01});
  int saved = 0;
  for (int i = 0; i < 10; ++i) {
    for (const auto& status : world.step()) {
      const auto& parts = status.parts->seconds;
      const double copied = status.parts->of(protocol::StepPart::kSave);
      EXPECT_NEAR(std::accumulate(parts.begin(), parts.end(), 0.0), status.step_seconds + copied,
                  1e-9);
      saved += copied > 0 ? 1 : 0;
      const bool late = status.stage == 3 && status.replica == 0;
      EXPECT_GE(status.parts->of(protocol::StepPart::kData), late ? 8 * 0.01 : 0);
    }
  }
  EXPECT_EQ(saved, 4 * 8);
}

TEST(StepWorld, SumsOfLayersSetOutWithinTheLastBackward) {
  const schedule::Plan plan = plan_of(1, 2, 4, 1);
  StepShape shape = shape_of(plan);
  const auto step = [&](int layers, double sum) {
    shape.layers = {layers};
    shape.sums = {sum};
    StepWorld world(plan, shape, 1);
    return step_of(world);
  };
  const double without = step(1, 0);
  EXPECT_NEAR(step(1, 0.02) - without, 0.02, 1e-9);
  EXPECT_NEAR(step(4, 0.02) - without, 0.005, 1e-9) << "the sum of the first layer";
  EXPECT_NEAR(step(4, 0.08) - without, 0.05, 1e-9) << "begins with the last quarter of 0.04 s";
}

TEST(StepWorld, MeetsTheSameChanceWithAndWithoutAFault) {
  const schedule::Plan plan = plan_of(3, 1, 8, 1);
  StepShape shape = shape_of(plan);
  shape.jitter = 0.05;
  StepWorld usual(plan, shape, 7), faulty(plan, shape, 7);
  faulty.plant({.kind = FaultKind::kDevice, .stage = 1, .size = 1});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step_of(usual), step_of(faulty)) << "a factor of 1";
  faulty.plant({.kind = FaultKind::kForwardLink, .stage = 1, .size = 20});
  EXPECT_LT(step_of(usual), step_of(faulty));
}

}  // namespace step_world_test
}  // namespace weir::sim
