// SPDX-License-Identifier: Apache-2.0
// E9 and E10 (tests/bench/README.md "Experiments") in virtual time: sync groups against exact
// all-reduce, SDPipe's own algorithm and first pairs; shares against all-reduce. WEIR_FULL=1 takes
// six seeds and trains a small network to compare losses.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "operator/adaptation/shares/policy.h"
#include "operator/estimator/replica_model.h"
#include "tests/sim/adapted_replicas.h"
#include "tests/sim/group_sim.h"
#include "tests/sim/seeds.h"

namespace weir::sim {
namespace groups_sim_test {

struct Case {
  const char* name;
  Uneven kind;
  double slow, dwell;
  double over_all_reduce, over_sdpipe;  // tests/bench/README.md "Targets of replicas"
  double jitter = 0.03, sync = 0.15;    // of a step: deviation; an exact all-reduce
};
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

UnevenOptions uneven(const Case& one) {
  return {.kind = one.kind,
          .slow = one.slow,
          .dwell = one.dwell,
          .sync = one.sync,
          .jitter = one.jitter};
}

GroupRun mean_run(const Case& one, Sync sync, int seeds, bool task) {
  GroupRun sum;
  for (int seed = 1; seed <= seeds; ++seed) {
    const GroupRun run = GroupSim(uneven(one), {.sync = sync, .horizon = 200, .task = task},
                                  static_cast<std::uint64_t>(seed))
                             .run();
    sum.throughput += run.throughput / seeds;
    sum.loss += run.loss / seeds;
    sum.consensus_error += run.consensus_error / seeds;
    sum.group_size += run.group_size / seeds;
    sum.contraction += run.contraction / seeds;
  }
  return sum;
}

class E9 : public testing::TestWithParam<Case> {};

// Six seeds meet the targets of the table; with fewer the spread of a seed is allowed for.
TEST_P(E9, Throughput) {
  const int seeds = full_run() ? 6 : 2;
  const double spread = full_run() ? 1 : 0.96;
  const Case& one = GetParam();
  const GroupRun exact = mean_run(one, Sync::kAllReduce, seeds, false);
  const GroupRun sdpipe = mean_run(one, Sync::kSdpipe, seeds, false);
  const GroupRun pairs = mean_run(one, Sync::kFirstPairs, seeds, false);
  const GroupRun groups = mean_run(one, Sync::kGroups, seeds, false);
  std::printf(
      "%-18s all-reduce %.3f steps a unit; SDPipe x%.2f (groups of %.1f), first pairs x%.2f, "
      "ours x%.2f (groups of %.1f, contraction %.3f)\n",
      one.name, exact.throughput, sdpipe.throughput / exact.throughput, sdpipe.group_size,
      pairs.throughput / exact.throughput, groups.throughput / exact.throughput, groups.group_size,
      groups.contraction);
  EXPECT_GE(groups.throughput, spread * one.over_all_reduce * exact.throughput);
  EXPECT_GE(groups.throughput, spread * one.over_sdpipe * sdpipe.throughput);
  EXPECT_LE(groups.contraction, 0.5);
}

TEST_P(E9, Learning) {
  const Case& one = GetParam();
  const std::string name = one.name;
  if (!full_run() && name != "changing" && name != "net") {
    GTEST_SKIP() << "two cases; all with WEIR_FULL=1";
  }
  const int seeds = full_run() ? 6 : 1;
  const GroupRun sdpipe = mean_run(one, Sync::kSdpipe, seeds, true);
  const GroupRun groups = mean_run(one, Sync::kGroups, seeds, true);
  std::printf("%-18s consensus error: SDPipe %.5f, ours %.5f; loss %.3f, %.3f\n", one.name,
              sdpipe.consensus_error, groups.consensus_error, sdpipe.loss, groups.loss);
  EXPECT_LE(groups.consensus_error, sdpipe.consensus_error / 3);
  if (!full_run()) return;
  // After as many units of time: the steps gained must not be paid for in loss.
  const GroupRun exact = mean_run(one, Sync::kAllReduce, seeds, true);
  std::printf("%-18s loss of all-reduce %.3f\n", one.name, exact.loss);
  EXPECT_LE(groups.loss, 1.01 * exact.loss);
}

INSTANTIATE_TEST_SUITE_P(
    Groups, E9,
    testing::Values(Case{"none", Uneven::kNone, 3, 20, 0.98, 0.92},
                    Case{"det2", Uneven::kOneSlow, 2, 20, 1.65, 0.95},
                    Case{"det4", Uneven::kOneSlow, 4, 20, 2.9, 1.2},
                    Case{"tail", Uneven::kTail, 4, 20, 1.8, 0.90},
                    Case{"changing", Uneven::kChanging, 3, 10, 1.6, 0.95},
                    Case{"net", Uneven::kSlowSync, 3, 20, 1.28, 1.03},
                    // All links are slow: averages go on beside steps.
                    Case{"slow_links", Uneven::kNone, 3, 20, 1.45, 1.15, 0.03, 0.6},
                    Case{"slow_links_changing", Uneven::kChanging, 3, 10, 2.2, 1.25, 0.03, 0.6},
                    // SDPipe's groups are larger when equal steps end at once.
                    Case{"tail_no_jitter", Uneven::kTail, 4, 20, 1.8, 0.90, 0},
                    Case{"changing_no_jitter", Uneven::kChanging, 3, 10, 1.6, 0.95, 0},
                    Case{"net_no_jitter", Uneven::kSlowSync, 3, 20, 1.28, 1.03, 0}),
    [](const auto& one) { return std::string(one.param.name); });

// Exact with the operator's shares: scrapes every 4 steps, the policy after each, no cooldown.
struct Rebalanced {
  double throughput = 0;  // after the first 80 steps
  int changes = 0;
};
Rebalanced run_exact(const UnevenOptions& options, bool rebalance, std::uint64_t seed) {
  constexpr int kSteps = 300, kSettled = 80, kScrape = 4;
  UnevenReplicas world(options, seed);
  shares::Input input;
  input.shares.assign(static_cast<std::size_t>(options.replicas), UnevenReplicas::kMicroBatches);
  input.stages = options.stages;
  shares::State memory;
  estimator::ReplicaModelState model;
  estimator::ReplicaScrape scrape;
  std::vector<int> all(input.shares.size());
  std::iota(all.begin(), all.end(), 0);
  double time = 0, settled_at = 0;
  Rebalanced result;
  for (int step = 1; step <= kSteps; ++step) {
    double slowest = 0;
    for (const int p : all) {
      const double share = static_cast<double>(input.shares[static_cast<std::size_t>(p)]) /
                           UnevenReplicas::kMicroBatches;
      const double seconds = world.step_seconds(p, time, share);
      slowest = std::max(slowest, seconds);
      scrape.replicas[p].seconds += seconds;
      scrape.replicas[p].steps = step;
    }
    time += slowest + world.sync_seconds(all, time + slowest);
    if (step == kSettled) settled_at = time;
    if (!rebalance || step % kScrape != 0) continue;
    const estimator::SystemTime now{std::chrono::seconds(step)};
    scrape.time = now;
    add_replica_scrapes(model, {scrape});
    input.replicas = replica_estimates_of(model, now, std::chrono::seconds(60));
    input.moment.step = step;
    auto decided = shares::decide(input, memory);
    memory = decided.state;
    if (!decided.decision.shares) continue;
    input.shares = *decided.decision.shares;
    forget_replicas(model);
    ++result.changes;
  }
  result.throughput = (kSteps - kSettled) / (time - settled_at);
  return result;
}

void expect_rebalance(const UnevenOptions& options, double least, int most_changes) {
  const int seeds = full_run() ? 6 : 2;
  double ratio = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    const Rebalanced with = run_exact(options, true, number);
    EXPECT_LE(with.changes, most_changes) << "seed " << seed;
    ratio += with.throughput / run_exact(options, false, number).throughput / seeds;
  }
  std::printf("shares over all-reduce: x%.2f\n", ratio);
  EXPECT_GE(ratio, least);
}

TEST(E10, EvenReplicasKeepTheirShares) {
  expect_rebalance({}, 0.98, 0);
}
TEST(E10, OneTwiceAsSlow) {
  expect_rebalance({.kind = Uneven::kOneSlow, .slow = 2}, 1.6, 2);
}
TEST(E10, OneFourTimesAsSlow) {
  expect_rebalance({.kind = Uneven::kOneSlow, .slow = 4}, 2.9, 4);
}

// Random regimes of random length: even, one slow, tails, changing speeds, slow sync links.
std::vector<Regime> random_regimes(std::uint64_t seed, double horizon, int replicas) {
  Random random(seed);
  std::vector<Regime> regimes;
  for (double begin = 0; begin < horizon; begin += 100 + 900 * random.uniform()) {
    Regime regime{.begin = begin, .options = {}};
    regime.options.kind = static_cast<Uneven>(random.below(6));
    regime.options.slow = 1.2 + 3 * random.uniform();
    regime.options.dwell = std::exp(5 * random.uniform());  // 1 to 150 steps
    regime.options.replicas = replicas;
    regimes.push_back(regime);
  }
  return regimes;
}

// Every window of 1000 units against doing nothing.
void expect_no_worse_than_nothing(shares::Allowed allowed, double least, double least_mean) {
  constexpr double kHorizon = 5000, kWindow = 1000;
  const int seeds = full_run() ? 200 : 20;
  double ratios = 0, changes = 0, worst = 10;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    const int replicas = 2 + 2 * (seed % 4);
    AdaptedOptions options{.regimes = random_regimes(number, kHorizon, replicas), .spec = {}};
    options.spec.mode = allowed;
    AdaptedOptions still = options;
    still.adapt = false;
    AdaptedReplicas adapted(options, number), nothing(still, number);
    double before = 0, before_nothing = 0;
    for (double end = kWindow; end <= kHorizon; end += kWindow) {
      adapted.run_until(end);
      nothing.run_until(end);
      const double ratio =
          (adapted.micro_batches() - before) / (nothing.micro_batches() - before_nothing);
      before = adapted.micro_batches();
      before_nothing = nothing.micro_batches();
      worst = std::min(worst, ratio);
      ratios += ratio / seeds / (kHorizon / kWindow);
      EXPECT_GE(ratio, least) << "seed " << seed << " up to " << end << ":\n"
                              << testing::PrintToString(adapted.changes());
    }
    if (allowed == shares::Allowed::kExact) {
      EXPECT_EQ(adapted.mode(), shares::Mode::kExact);
    }
    changes += static_cast<double>(adapted.changes().size()) / seeds;
  }
  std::printf("throughput x%.3f of doing nothing, at least x%.3f, %.1f changes in %.0f units\n",
              ratios, worst, changes, kHorizon);
  EXPECT_GE(ratios, least_mean);
}

// Shares cannot follow speeds that change within minutes; what trying costs is bounded
// (operator/adaptation/shares/share_cost.h).
TEST(SyncPolicyLoop, SharesAreNoWorseThanNothing) {
  expect_no_worse_than_nothing(shares::Allowed::kExact, 0.97, 1.05);
}
TEST(SyncPolicyLoop, AutoIsNoWorseThanNothing) {
  expect_no_worse_than_nothing(shares::Allowed::kAuto, 0.97, 1.2);
}

}  // namespace groups_sim_test
}  // namespace weir::sim
