// SPDX-License-Identifier: Apache-2.0
// Steps over links that a co-tenant takes and frees at random: means and tails of the published
// table (tests/data/README.md), S=4 M=32 f=1 b=2 c=.5.
#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/worker/schedule/plans_by_name.h"
#include "worker/base/random.h"

namespace weir::schedule {
namespace bursts_test {

using test::equal_model;
using test::step_named;

constexpr int kM = 32;
constexpr double kIdeal = 105;  // (M+S-1)(f+b)

// Each link is preempted half of the time, for exponential times; both directions share it.
RateTrace bursts(Random& random, double share, double mean, double horizon) {
  RateTrace trace;
  bool preempted = random.uniform() < 0.5;
  for (double at = 0; at < horizon; at += std::max(1e-9, random.exponential(mean))) {
    trace.emplace_back(test::units(at), preempted ? share : 1.0);
    preempted = !preempted;
  }
  return trace;
}

struct Spread {
  double mean = 0, p95 = 0;
};
Spread over_bursts(const std::string& name, double share, double mean_burst) {
  constexpr int kSeeds = 8, kSteps = 60;
  std::vector<double> times;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Random random(seed);
    PipelineModel model = equal_model(4, {0.5, 0.5, 0.5});
    for (std::size_t b = 0; b < 3; ++b) {
      model.forward[b].trace = bursts(random, share, mean_burst, 3.0 * kSteps * kIdeal);
      model.backward[b].trace = model.forward[b].trace;
    }
    for (int step = 0; step < kSteps; ++step) {
      const double time = step_named(name, kM, model);
      times.push_back(time / kIdeal);
      model.start += test::units(time);
    }
  }
  std::sort(times.begin(), times.end());
  return {std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size()),
          times[static_cast<std::size_t>(0.95 * static_cast<double>(times.size()))]};
}

TEST(Bursts, MeansAndTailsAreThoseOfTheTable) {
  // Other random numbers than those of the table: +-2 % for the mean, 5 % for the tail.
  const std::vector<std::string> names = {"1F1B",   "k2",    "k4",   "k8",
                                          "slack3", "hint3", "hzb3", "GPipe"};
  struct Row {
    double share, burst;
    std::vector<double> mean, p95;
  };
  const Row rows[] = {{.5, 16, {1.375, 1.04, 1.05, 1.05, 1.04, 1.04, .96, 1.05}, {}},
                      {.25, 1, {1.54, 1.10, 1.08, 1.10, 1.06, 1.06, .97, 1.13}, {1.58}},
                      {.25,
                       16,
                       {1.67, 1.18, 1.10, 1.14, 1.07, 1.07, .99, 1.27},
                       {1.78, 1.23, 1.13, 1.19, 1.10, 1.10}},
                      {.25,
                       256,
                       {1.68, 1.18, 1.10, 1.16, 1.07, 1.07, .99, 1.32},
                       {1.95, 1.27, 1.14, 1.20, 1.11, 1.11}},
                      {.15,
                       64,
                       {2.02, 1.52, 1.41, 1.49, 1.21, 1.21, 1.15, 1.83},
                       {2.35, 1.71, 1.57, 1.78, 1.30, 1.30}}};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Spread got = over_bursts(names[i], row.share, row.burst);
      EXPECT_NEAR(got.mean / row.mean[i], 1, 0.025)
          << names[i] << " share " << row.share << " burst " << row.burst << ": " << got.mean;
      if (i >= row.p95.size()) continue;
      EXPECT_NEAR(got.p95 / row.p95[i], 1, 0.05) << names[i] << " burst " << row.burst;
    }
}

}  // namespace bursts_test
}  // namespace weir::schedule
