// SPDX-License-Identifier: Apache-2.0
// Random losses of workers, coordinators and leaders of the operator, in virtual time. After each
// seed all recover; no step is made again while a replica is whole; nobody ends a step in an older
// history than another one; a term has one coordinator. WEIR_SIM_SEEDS sets how many seeds run,
// WEIR_SEED runs one and prints what happened.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tests/sim/recovery_world.h"
#include "tests/sim/seeds.h"

namespace weir::sim {
namespace recovery_sim_test {

constexpr int kEpisodes = 8;
constexpr double kStart = 120;    // s, until all train
constexpr double kRecover = 420;  // s: nodes are away for two minutes, restarts are delayed

RecoveryCase case_of(std::uint64_t seed) {
  Random random(mix_seed(seed, "case"));
  RecoveryCase one;
  do {
    one.stages = 1 + static_cast<int>(random.below(3));
    one.replicas = 1 + static_cast<int>(random.below(3));
  } while (one.stages * one.replicas < 2);
  one.spares = random.below(2) == 0 ? 1 : 0;
  one.in_place = random.below(4) != 0;
  return one;
}

TEST(Recovery, OfRandomLossesEndsWithAllAndRepeatsNoStepThatAReplicaHolds) {
  Seeds seeds = seeds_of_run(60, 2000, 4);
  if (const char* many = std::getenv("WEIR_SIM_SEEDS"); many != nullptr && !seeds.alone)
    seeds.last = std::strtoull(many, nullptr, 10);
  std::int64_t blows = 0, steps = 0, repeated = 0, in_vain = 0, terms = 0;
  for (std::uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const RecoveryCase one = case_of(seed);
    RecoveryWorld world(one, seed);
    Random random(mix_seed(seed, "blows"));
    bool all = world.recovers(kStart);
    EXPECT_TRUE(all) << "seed " << seed << ": not all train\n" << world.state();
    for (int episode = 0; all && episode < kEpisodes; ++episode) {
      const int together = random.below(3) == 0 ? 2 : 1;
      for (int i = 0; i < together; ++i) {
        world.strike(static_cast<Blow>(random.below(kBlows)));
        ++blows;
        world.run(random.uniform());
      }
      world.run(20 * random.uniform());
      if (random.below(3) != 0) all = world.recovers(kRecover);
    }
    all = all && world.recovers(kRecover);
    EXPECT_TRUE(all) << "seed " << seed << ": not all train again\n" << world.state();
    EXPECT_TRUE(world.wrong().empty()) << "seed " << seed << ": " << world.wrong().front();
    EXPECT_EQ(world.needlessly_repeated(), 0) << "seed " << seed;
    steps += world.steps();
    repeated += world.repeated();
    in_vain += world.in_vain();
    terms += world.terms();
    if (seeds.alone) std::printf("%s", world.history().c_str());
    if (HasFailure()) break;
  }
  std::printf(
      "%lld losses in %lld steps, of which %lld were made again, %lld in vain; %lld terms\n",
      static_cast<long long>(blows), static_cast<long long>(steps),
      static_cast<long long>(repeated), static_cast<long long>(in_vain),
      static_cast<long long>(terms));
}

}  // namespace recovery_sim_test
}  // namespace weir::sim
