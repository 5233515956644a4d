// SPDX-License-Identifier: Apache-2.0
// Graphs that no profiler wrote: several sources and sinks, long chains, wide and dense layers,
// parts without a connection, zero and huge weights. Every one ends in a plan that the independent
// checker accepts, with a bound, or in one line that says what does not fit.
#include <set>

#include <gmock/gmock.h>

#include "operator/planner/plan.h"
#include "operator/planner/tool/check.h"
#include "worker/base/random.h"

namespace weir::planner {
namespace odd_graphs_test {

using testing::IsEmpty;

enum class Shape {
  kChain,
  kStarOut,
  kStarIn,
  kApart,
  kDense,
  kCells,
  kParallel,
  kRandom,
  kPieces,
  kLadder
};
constexpr int kShapes = 10;

std::vector<std::pair<int, int>> edges_of(Shape shape, int nodes, Random& random) {
  std::vector<std::pair<int, int>> edges;
  const int width = 2 + static_cast<int>(random.below(9));
  for (int i = 1; i < nodes; ++i) {
    switch (shape) {
      case Shape::kChain:
        edges.emplace_back(i - 1, i);
        break;
      case Shape::kStarOut:
        edges.emplace_back(0, i);
        break;
      case Shape::kStarIn:
        edges.emplace_back(i - 1, nodes - 1);
        break;
      case Shape::kApart:
        break;
      case Shape::kDense:  // complete bipartite layers
        for (int j = std::max(0, i / width - 1) * width; j < i / width * width; ++j) {
          edges.emplace_back(j, i);
        }
        break;
      case Shape::kCells:  // branches of one node that join again
        edges.emplace_back(i % (width + 1) == 0 ? i - 1 : i / (width + 1) * (width + 1), i);
        if (i % (width + 1) == 0) {
          for (int j = std::max(0, i - width); j < i - 1; ++j) edges.emplace_back(j, i);
        }
        break;
      case Shape::kParallel:
        if (i >= width) edges.emplace_back(i - width, i);
        break;
      case Shape::kRandom:
        for (std::uint64_t k = random.below(4); k > 0; --k) {
          edges.emplace_back(static_cast<int>(random.below(static_cast<std::uint64_t>(i))), i);
        }
        break;
      case Shape::kPieces:
        if (i % width != 0) edges.emplace_back(i - 1, i);
        break;
      case Shape::kLadder:
        if (i >= 2) edges.emplace_back(i - 2, i);
        if (i >= 3 && i % 2 == 0) edges.emplace_back(i - 3, i);
        break;
    }
  }
  return edges;
}

// weights: 0 nothing weighs anything, 1 usual, 2 some nodes are as large as numbers may be.
Model model_of(Shape shape, int nodes, int weights, Random& random) {
  Model model;
  model.name = "odd";
  model.scaling = Scaling::kProportional;
  const auto value = [&](double usual) {
    if (weights == 0) return std::int64_t{0};
    const double huge = weights == 2 && random.below(8) == 0 ? 1e5 : 1;
    return static_cast<std::int64_t>(random.uniform() * usual * huge);
  };
  for (int i = 0; i < nodes; ++i) {
    Layer layer;
    layer.id = "n" + std::to_string(i);
    layer.parameter_bytes = value(1e6);
    layer.output_bytes_per_sample = value(1e6);
    layer.stash_bytes_per_sample = layer.output_bytes_per_sample;
    layer.times[""] = {
        {1, std::chrono::nanoseconds(value(1e7)), std::chrono::nanoseconds(value(2e7)), {}}};
    model.layers.push_back(std::move(layer));
  }
  model.edges = edges_of(shape, nodes, random);
  model.edges_given = true;
  return model;
}

Cluster cluster_of(int fast, int slow, std::int64_t memory) {
  Cluster cluster;
  cluster.classes = {{"A", memory, 0, 1}, {"B", memory, 0, 2}};
  for (int d = 0; d < fast + slow; ++d) {
    Device device;
    device.node = "s" + std::to_string(d / 2);
    device.pod = "p" + std::to_string(d);
    device.device_class = d < fast ? "A" : "B";
    device.memory_bytes = memory;
    cluster.devices.push_back(std::move(device));
  }
  return cluster;
}

// Plans were found, of those that are tried.
bool planned(const Model& model, const Cluster& cluster, const Request& request,
             const Limits& limits) {
  const auto report = plan(model, cluster, request, limits);
  if (!report.ok()) {
    EXPECT_EQ(report.error().code, Code::kNotFound) << report.error().message;
    EXPECT_EQ(report.error().message.find('\n'), std::string::npos);
    return false;
  }
  const Optimality& it = report->optimality;
  EXPECT_GE(it.lower_bound, 0);
  EXPECT_LE(it.lower_bound, report->objective_seconds);
  EXPECT_LE(report->objective_seconds, it.upper_bound);
  EXPECT_NE(it.status, "heuristic");
  EXPECT_TRUE(it.lower_bound > 0 || report->objective_seconds == 0);
  const CheckedPlan checked =
      check_plan(model, cluster, report->plan, {.order = report->order, .many_ranks = true});
  EXPECT_THAT(checked.broken, IsEmpty());
  return true;
}

Request request_of(Random& random) {
  Request request;
  request.global_batch = 1 + static_cast<int>(random.below(24));
  request.micro_batch_size = 1;
  request.keep_order = random.below(4) == 0;
  request.most_ranks_per_stage = static_cast<int>(random.below(2));
  request.k_max = 1 + static_cast<int>(random.below(8));
  request.tie_of_k = 0;
  if (random.below(3) == 0) request.objective = Objective::kAsync;
  return request;
}

TEST(OddGraphs, EndInAPlanOrInAReason) {
#ifdef WEIR_SANITIZED
  constexpr std::uint64_t kSeeds = 60;
#else
  constexpr std::uint64_t kSeeds = 300;
#endif
  int plans = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto shape = static_cast<Shape>(random.below(kShapes));
    const int nodes = 1 + static_cast<int>(random.below(40));
    const Model model = model_of(shape, nodes, static_cast<int>(random.below(3)), random);
    const std::int64_t memory = random.below(3) == 0 ? 60'000'000 : 0;
    const int fast = 1 + static_cast<int>(random.below(4));
    const Cluster cluster = cluster_of(fast, static_cast<int>(random.below(3)), memory);
    Limits limits;
    limits.ideals = random.below(2) == 0 ? 200'000 : 300;
    limits.simulated_events = 100'000;
    limits.search_steps = 200'000;
    limits.proof_steps = 1'000'000;
    ++(planned(model, cluster, request_of(random), limits) ? plans : refused);
  }
  EXPECT_GT(plans, static_cast<int>(kSeeds / 2));
  EXPECT_GT(refused, static_cast<int>(kSeeds / 60)) << "memory was too small for some";
}

TEST(OddGraphs, WithoutAnyWorkStillUseTheDevicesThatTheyMust) {
  Random random(1);
  Request request;
  request.global_batch = 4;
  request.micro_batch_size = 1;
  request.use_all_devices = true;
  const Model model = model_of(Shape::kChain, 12, 0, random);
  Cluster cluster = cluster_of(3, 1, 0);
  cluster.default_latency = {};

  const auto report = plan(model, cluster, request);

  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->plan.ranks.size(), 4U);
  EXPECT_EQ(report->optimality.status, "optimal");
}

TEST(OddGraphs, OfTwoThousandNodesArePlannedWithinTheLimits) {
#ifdef WEIR_SANITIZED
  GTEST_SKIP() << "minutes under sanitizers";
#endif
  for (int s = 0; s < kShapes; ++s) {
    SCOPED_TRACE("shape " + std::to_string(s));
    Random random(static_cast<std::uint64_t>(s));
    const Model model = model_of(static_cast<Shape>(s), 2000, 1, random);
    Request request;
    request.global_batch = 8;
    request.micro_batch_size = 1;
    request.keep_order = false;
    Limits limits;
    limits.ideals = 20'000;
    limits.simulated_events = 200'000;
    limits.search_steps = 200'000;
    limits.proof_steps = 1'000'000;
    EXPECT_TRUE(planned(model, cluster_of(3, 1, 0), request, limits));
  }
}

}  // namespace odd_graphs_test
}  // namespace weir::planner
