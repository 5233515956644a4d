// SPDX-License-Identifier: Apache-2.0
// The dynamic program against every cut and every assignment of kinds, on small random models.
#include "operator/planner/linear.h"

#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::planner {
namespace {

using std::chrono::nanoseconds;

struct Small {
  Model model;
  Cluster cluster;
  Shape shape;
};

nanoseconds ticks(double milliseconds) {
  return nanoseconds(static_cast<std::int64_t>(milliseconds * 1e6));
}

Small random_problem(std::uint64_t seed) {
  Random random(seed);
  Small small;
  const int layers = 3 + static_cast<int>(random.below(5));
  const int stages = 2 + static_cast<int>(random.below(3));
  for (int i = 0; i < layers; ++i) {
    Layer layer;
    layer.id = std::to_string(i);
    layer.parameter_bytes = static_cast<std::int64_t>(random.below(1000));
    layer.output_bytes_per_sample = static_cast<std::int64_t>(random.below(2000));
    layer.stash_bytes_per_sample = static_cast<std::int64_t>(random.below(1000));
    const double f = 1 + 9 * random.uniform(), b = 1 + 19 * random.uniform();
    layer.times["fast"] = {{1, ticks(f), ticks(b)}};
    layer.times["slow"] = {{1, ticks(2.5 * f), ticks(1.5 * b)}};
    small.model.layers.push_back(layer);
  }
  const bool two_kinds = random.below(2) == 0, tight = random.below(2) == 0;
  for (int d = 0; d < stages + static_cast<int>(random.below(2)); ++d) {
    Device device;
    device.node = std::to_string(d);
    device.device_class = two_kinds && d % 2 == 1 ? "slow" : "fast";
    if (tight) device.memory_bytes = 20'000;
    small.cluster.devices.push_back(device);
  }
  small.cluster.default_bytes_per_second = 3e5;  // 0 .. 7 ms
  small.shape.stages = std::min(stages, layers);
  small.shape.micro_batches = 4 + static_cast<int>(random.below(20));
  small.shape.k = 1 + static_cast<int>(random.below(3));
  small.shape.schedule.caps =
      schedule::kfkb_caps(small.shape.stages, small.shape.micro_batches, small.shape.k);
  return small;
}

class EveryCut {
 public:
  explicit EveryCut(const Problem& problem) : problem_(problem) { cut_.first = {0}; }
  std::optional<double> least() {
    visit();
    return least_;
  }

 private:
  void visit() {
    const int s = static_cast<int>(cut_.kinds.size());
    if (s == problem_.shape.stages) {
      if (cut_.first.back() != problem_.chain.layers) return;
      const double now = step_seconds(
          pipeline_of(problem_.chain, problem_.slots, cut_, problem_.links), problem_.shape);
      if (!least_ || now < *least_) least_ = now;
      return;
    }
    for (int end = cut_.first.back() + 1; end <= problem_.chain.layers; ++end) {
      for (int kind = 0; kind < static_cast<int>(problem_.slots.kinds.size()); ++kind) {
        const Kind& it = problem_.slots.kinds[static_cast<std::size_t>(kind)];
        const auto used = std::count(cut_.kinds.begin(), cut_.kinds.end(), kind);
        if (used == static_cast<std::ptrdiff_t>(it.devices.size())) continue;
        if (it.usable_bytes > 0 && stage_bytes(problem_.chain, problem_.shape, s, cut_.first.back(),
                                               end) > it.usable_bytes)
          continue;
        cut_.first.push_back(end);
        cut_.kinds.push_back(kind);
        visit();
        cut_.first.pop_back();
        cut_.kinds.pop_back();
      }
    }
  }

  const Problem& problem_;
  Cut cut_;
  std::optional<double> least_;
};

TEST(Linear, IsWithinTheGridOfTheBestOfAllCuts) {
  int infeasible = 0, exact = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Small small = random_problem(seed);
    const Slots slots = slots_of(small.cluster);
    const Chain chain = chain_of(small.model, slots.classes, 1);
    const Problem problem{
        .chain = chain,
        .slots = slots,
        .shape = small.shape,
        .links = std::vector<BoundaryLink>(static_cast<std::size_t>(small.shape.stages - 1),
                                           {slots.usual, slots.usual}),
        .kinds = {}};

    const Solved solved = solve(problem);
    const std::optional<double> best = EveryCut(problem).least();

    ASSERT_EQ(best.has_value(), !solved.best.empty()) << "seed " << seed;
    if (!best) {
      ++infeasible;
      continue;
    }
    EXPECT_GE(solved.best.front().seconds, *best * (1 - 1e-9)) << "seed " << seed;
    EXPECT_LE(solved.best.front().seconds, *best * 1.003) << "seed " << seed;
    EXPECT_LE(solved.lower_bound, *best * (1 + 1e-9)) << "seed " << seed;
    EXPECT_GE(solved.lower_bound, *best * 0.997) << "seed " << seed;
    exact += solved.best.front().seconds <= *best * (1 + 1e-9) ? 1 : 0;
  }
  EXPECT_GT(infeasible, 5) << "memory must matter somewhere";
  EXPECT_LT(infeasible, 150);
  EXPECT_GT(exact, 140) << "nearly all";
}

TEST(Linear, KeepsFixedKinds) {
  const Small small = random_problem(7);
  Slots slots = slots_of(small.cluster);
  for (Kind& kind : slots.kinds) kind.usable_bytes = 0;
  const Chain chain = chain_of(small.model, slots.classes, 1);
  int stuck = 0;
  Problem problem{.chain = chain,
                  .slots = slots,
                  .shape = small.shape,
                  .links = std::vector<BoundaryLink>(
                      static_cast<std::size_t>(small.shape.stages - 1), {slots.usual, slots.usual}),
                  .kinds = first_fit_kinds(slots, small.shape.stages, &stuck)};

  const Solved solved = solve(problem);

  ASSERT_FALSE(solved.best.empty());
  for (const CostedCut& costed : solved.best) EXPECT_EQ(costed.cut.kinds, problem.kinds);
}

TEST(Linear, ManyScarceKindsAreNotCountable) {
  Cluster cluster;
  for (int d = 0; d < 13; ++d) {
    Device device;
    device.device_class = std::to_string(d);
    cluster.devices.push_back(device);
  }
  EXPECT_EQ(table_size(slots_of(cluster), 13, 20), 0);  // 2^13 states
  cluster.devices.resize(8);
  EXPECT_EQ(table_size(slots_of(cluster), 8, 20), 256 * 8 * 20);
}

TEST(Chain, ACutCountsATensorOnceInEveryBoundaryItCrosses) {
  Model model;
  model.layers.resize(4);
  for (std::size_t i = 0; i < 4; ++i) {
    model.layers[i].id = std::to_string(i);
    model.layers[i].output_bytes_per_sample = static_cast<std::int64_t>(10 * (i + 1));
  }
  EXPECT_EQ(chain_of(model, {"cpu"}, 2).cut, (std::vector<std::int64_t>{0, 20, 40, 60, 0}));

  model.edges = {{0, 1}, {1, 2}, {2, 3}, {0, 3}, {0, 2}};  // layer 0 is needed up to 3
  EXPECT_EQ(chain_of(model, {"cpu"}, 1).cut, (std::vector<std::int64_t>{0, 10, 30, 40, 0}));
  EXPECT_EQ(edge_that_runs_back(model), "");
  model.edges.emplace_back(3, 1);
  EXPECT_EQ(edge_that_runs_back(model), "3 -> 1");
}

}  // namespace
}  // namespace weir::planner
