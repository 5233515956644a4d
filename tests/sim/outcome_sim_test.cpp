// SPDX-License-Identifier: Apache-2.0
// PlanOutcome against the truth, and quiet jobs. Networks that move before, at and after the switch
// to a plan. The truth is the step of the plan before in the same moments in which the steps of the
// new plan were measured. 20 seeds, WEIR_FULL=1: 100; WEIR_SEED=<seed> prints that one.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tests/sim/seeds.h"
#include "tests/sim/whole_loop.h"

namespace weir::sim {
namespace outcome_sim_test {

constexpr double kHorizon = 260;  // seconds

// A co-tenant takes bandwidth of a node, which makes the operator change the plan about 15 s later.
// Then it takes more or less, or ends: before the switch, about then, after it, or not at all.
LoopCase moving_case(std::uint64_t seed) {
  Random random(mix_seed(seed, "moving"));
  const auto share = [&](double least, double most) {
    return least * std::exp(random.uniform() * std::log(most / least));
  };
  LoopCase one;
  one.horizon = kHorizon;
  one.shape.node_rate = 6e6 * (1 + 4 * random.uniform());
  one.regroups = seed % 4 == 3;
  Hazards hazards;
  hazards.node_share.resize(static_cast<std::size_t>(one.shape.workers + one.spare_nodes));
  hazards.slow.resize(hazards.node_share.size());
  Course& course = hazards.node_share[random.below(4)];
  const double begin = 60 + 40 * random.uniform();
  course.set(begin, share(0.08, 0.5));
  constexpr double kMoves[4][2] = {{3, 9}, {9, 18}, {18, 40}, {1000, 1000}};
  const auto& move = kMoves[seed % 4];
  course.set(begin + move[0] + (move[1] - move[0]) * random.uniform(), share(0.08, 1));
  one.hazards = hazards;
  return one;
}

TEST(OutcomeSim, TellsTheGainOfAChangeAlthoughTheNetworkMoves) {
  const auto [first, last, alone] = seeds_of_run(20, 100, 2);
  int told = 0, right = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    WholeLoop loop(moving_case(seed), "Auto", seed);
    loop.run();
    if (alone) std::printf("%s", loop.history().c_str());
    for (const auto& what : loop.wrong()) ADD_FAILURE() << "seed " << seed << ", " << what;
    for (const WholeLoop::Outcome& outcome : loop.outcomes()) {
      ++told;
      const double off = std::abs(outcome.told - outcome.truth);
      const bool good = off <= std::max(std::abs(outcome.truth) / 3, 0.015);
      right += good ? 1 : 0;
      if (good && first != last) continue;
      std::printf("seed %llu, %.0f s: truth %+.1f %%, %s\n", static_cast<unsigned long long>(seed),
                  outcome.time, 100 * outcome.truth, outcome.note.c_str());
    }
  }
  std::printf("%d of %d outcomes within a third of the truth or 1.5 points\n", right, told);
  if (alone) return;
  EXPECT_GE(told, static_cast<int>(last) / 2);
  EXPECT_GE(right, std::ceil(0.95 * told));
}

// 10,000 steps on a quiet network, whose rates and steps only scatter.
TEST(QuietSim, NeverDegradesAJob) {
  LoopCase one;
  one.shape.node_rate = 1.5e7;
  Hazards hazards;
  hazards.node_share.resize(static_cast<std::size_t>(one.shape.workers + one.spare_nodes));
  hazards.slow.resize(hazards.node_share.size());
  one.hazards = hazards;
#ifdef WEIR_SANITIZED
  one.horizon = 400;
  constexpr std::int64_t kLeastSteps = 300;
#else
  one.horizon = 9000;
  constexpr std::int64_t kLeastSteps = 10'000;
#endif
  WholeLoop loop(one, "Auto", 1);
  loop.run();
  for (const auto& what : loop.wrong()) ADD_FAILURE() << what;
  EXPECT_GE(loop.steps(), kLeastSteps);
  EXPECT_EQ(loop.degraded(), 0) << loop.history();
}

}  // namespace outcome_sim_test
}  // namespace weir::sim
