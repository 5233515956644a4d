// SPDX-License-Identifier: Apache-2.0
// The bottleneck on unequal devices against every chain of ideals and every choice of devices.
#include "operator/planner/async/unequal_devices.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "operator/planner/async/engine.h"
#include "tests/operator/planner/graph/graphs.h"

namespace weir::planner {
namespace unequal_devices_test {

double stage_seconds(const Ideals& ideals, std::size_t i, std::size_t j, const Taking& by,
                     bool transfers) {
  const auto column = static_cast<std::size_t>(by.column);
  const double work = 1e-9 * static_cast<double>(ideals.work(column, j) - ideals.work(column, i));
  const auto bytes = static_cast<double>(ideals.parameters[j] - ideals.parameters[i]);
  const double own = (work + 4.0 * (by.ranks - 1) * bytes / (by.ring * by.ranks)) / by.ranks;
  const double before = 2.0 * static_cast<double>(ideals.cut[i]) / (by.in * by.ranks);
  const double behind = 2.0 * static_cast<double>(ideals.cut[j]) / (by.out * by.ranks);
  return transfers ? std::max({own, before, behind}) : own;
}

class BruteForce {
 public:
  BruteForce(const Ideals& ideals, const DeviceStates& states, bool transfers)
      : ideals_(ideals), states_(states), transfers_(transfers) {}

  double best() {
    extend(0, 0, 0);
    return best_;
  }

 private:
  void extend(std::size_t from, int state, double value) {
    if (from == ideals_.last()) best_ = std::min(best_, value);
    for (std::size_t to = from + 1; to < ideals_.count(); ++to) {
      if (!ideals_.subset(from, to)) continue;
      for (const Taking& by : states_.takings[static_cast<std::size_t>(state)]) {
        extend(to, by.next, std::max(value, stage_seconds(ideals_, from, to, by, transfers_)));
      }
    }
  }

  const Ideals& ideals_;
  const DeviceStates& states_;
  const bool transfers_;
  double best_ = std::numeric_limits<double>::infinity();
};

void expect_best(const Dag& dag, const DeviceStates& states, bool transfers) {
  const Ideals ideals = *enumerate_ideals(dag);
  const double best = BruteForce(ideals, states, transfers).best();

  const UnequalPlan plan = plan_unequal(dag, ideals, states, transfers, {});

  ASSERT_NEAR(plan.value, best, 1e-12 + 1e-9 * best);
  ASSERT_TRUE(plan.proved);
  ASSERT_EQ(plan.lower_bound, plan.value);
  ASSERT_EQ(plan.ends.back(), ideals.last());
  double value = 0;
  std::size_t from = 0;
  int state = 0;
  for (std::size_t s = 0; s < plan.ends.size(); ++s) {
    value = std::max(value, stage_seconds(ideals, from, plan.ends[s], plan.stages[s], transfers));
    const auto& possible = states.takings[static_cast<std::size_t>(state)];
    ASSERT_TRUE(std::any_of(possible.begin(), possible.end(), [&](const Taking& taking) {
      return taking.next == plan.stages[s].next && taking.ranks == plan.stages[s].ranks;
    }));
    state = plan.stages[s].next;
    from = plan.ends[s];
  }
  EXPECT_NEAR(value, plan.value, 1e-12);
}

TEST(Unequal, SeveralClassesEqualBruteForce) {
  std::mt19937 random(3);
  for (int round = 0; round < 600; ++round) {
    SCOPED_TRACE(round);
    const Dag dag = random_graph(random, 1 + round % 6, 0.2 + 0.1 * (round % 6), 2);
    const auto states =
        states_of_counts({1 + round % 2, 1 + round % 3}, {0, 1}, round % 2 == 0 ? 1e9 : 4e9, 100);
    ASSERT_TRUE(states);
    expect_best(dag, *states, round % 3 != 0);
    if (HasFatalFailure()) return;
  }
}

TEST(Unequal, TwoLevelsEqualBruteForce) {
  std::mt19937 random(4);
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const Dag dag = random_graph(random, 1 + round % 6, 0.2 + 0.1 * (round % 6));
    expect_best(dag, states_of_servers(2, 1 + round % 3, 1e10, 1e9), round % 3 != 0);
    if (HasFatalFailure()) return;
  }
}

TEST(Unequal, OneClassIsTheBottleneckOfEqualDevices) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const Dag dag = random_graph(random, 12, 0.3);
    BottleneckProblem problem;
    problem.devices = 5;
    const Ideals ideals = *enumerate_ideals(dag);
    const double value = plan_bottleneck(dag, problem).value;
    EXPECT_NEAR(plan_unequal(dag, ideals, *states_of_counts({5}, {0}, 1e9, 100), true, {}).value,
                value, 1e-9 * value);
    // A server each, or one server with the same rate inside, is one level, too.
    EXPECT_NEAR(plan_unequal(dag, ideals, states_of_servers(5, 1, 1e9, 1e9), true, {}).value, value,
                1e-9 * value);
    EXPECT_NEAR(plan_unequal(dag, ideals, states_of_servers(1, 5, 1e9, 1e9), true, {}).value, value,
                1e-9 * value);
  }
}

// Two servers of four are no worse than eight devices that have the slow rate between all, and no
// better than eight that have the fast one.
TEST(Unequal, TwoLevelsLieBetweenTheLevels) {
  for (const char* graph : {"alexnet", "vgg16", "squeezenet1_0", "resnet18", "gnmt"}) {
    const Dag dag = pipedream_graph(graph);
    const Ideals ideals = *enumerate_ideals(dag);
    BottleneckProblem problem;
    problem.devices = 8;
    const double slow = plan_bottleneck(dag, problem).value;
    problem.bytes_per_second = 1e10;
    const double fast = plan_bottleneck(dag, problem).value;

    const UnequalPlan plan =
        plan_unequal(dag, ideals, states_of_servers(2, 4, 1e10, 1e9), true, {});

    EXPECT_LE(plan.value, slow * (1 + 1e-6)) << graph;
    EXPECT_GE(plan.value, fast * (1 - 1e-6)) << graph;
    EXPECT_TRUE(plan.proved) << graph;
  }
}

TEST(Unequal, TooManyCombinationsAreRefused) {
  EXPECT_FALSE(states_of_counts({9, 9}, {0, 1}, 1e9, 99));
  EXPECT_TRUE(states_of_counts({9, 9}, {0, 1}, 1e9, 100));
}

TEST(Unequal, AStopOrTheLimitOfWorkLeavesAPlanAndAValidBound) {
#ifdef WEIR_SANITIZED
  GTEST_SKIP() << "minutes under sanitizers";
#endif
  std::mt19937 random(6);
  const Dag dag = random_graph(random, 300, 0.004);
  Dag chain = dag;  // 301 ideals: more than the first search takes
  std::vector<std::pair<int, int>> edges;
  for (int i = 0; i + 1 < dag.nodes; ++i) edges.emplace_back(i, i + 1);
  chain.successors.clear();
  chain.predecessors.clear();
  chain = dag_from(std::move(chain), edges);
  const Ideals ideals = *enumerate_ideals(chain);
  const DeviceStates states = *states_of_counts({16, 16}, {0, 0}, 1e9, 1000);

  const UnequalPlan stopped = plan_unequal(chain, ideals, states, true, [] { return true; });
  const UnequalPlan limited = plan_unequal(chain, ideals, states, true, {}, 1'000'000);
  const UnequalPlan whole = plan_unequal(chain, ideals, states, true, {});

  for (const UnequalPlan* plan : {&stopped, &limited}) {
    EXPECT_FALSE(plan->proved);
    EXPECT_FALSE(plan->stages.empty());
    EXPECT_GE(plan->value, whole.value);
    EXPECT_LE(plan->lower_bound, whole.value);
  }
  EXPECT_LT(limited.pairs, whole.pairs);
  EXPECT_TRUE(whole.proved);
}

}  // namespace unequal_devices_test
}  // namespace weir::planner
