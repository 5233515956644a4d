// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/async/engine.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "operator/planner/async/feasible_cut.h"
#include "tests/operator/planner/graph/graphs.h"

namespace weir::planner {
namespace engine_test {

// The largest time of a stage or a boundary, from the stages alone.
double bottleneck_value(const Dag& dag, const BottleneckProblem& problem,
                        const std::vector<BottleneckStage>& stages) {
  const BottleneckCosts costs{problem.devices, problem.bytes_per_second, problem.transfers};
  const DagTimes& times = dag.classes.front();
  std::vector<std::size_t> stage_of(static_cast<std::size_t>(dag.nodes), 0);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const int node : stages[s].nodes) stage_of[static_cast<std::size_t>(node)] = s;
  }
  double value = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    std::int64_t work = 0;
    std::int64_t parameters = 0;
    std::int64_t cut = 0;  // behind stage s
    for (const int node : stages[s].nodes) {
      work += times.forward[static_cast<std::size_t>(node)] +
              times.backward[static_cast<std::size_t>(node)];
      parameters += dag.parameters[static_cast<std::size_t>(node)];
    }
    for (std::size_t node = 0; node < stage_of.size(); ++node) {
      const auto& consumers = dag.successors[node];
      if (stage_of[node] <= s && std::ranges::any_of(consumers, [&](int next) {
            return stage_of[static_cast<std::size_t>(next)] > s;
          })) {
        cut += dag.output[node];
      }
    }
    value = std::max(value, costs.stage(work, parameters, stages[s].ranks));
    if (s + 1 == stages.size()) break;
    value = std::max(value, costs.boundary(cut, std::min(stages[s].ranks, stages[s + 1].ranks)));
  }
  return value;
}

// Every chain of ideals with every count of ranks, by definition.
class BruteForce {
 public:
  BruteForce(const Ideals& ideals, const BottleneckProblem& problem)
      : ideals_(ideals), problem_(problem) {}

  double best() {
    extend(0, 0, problem_.devices, 0);
    return best_;
  }

 private:
  double boundary(std::size_t ideal, int ranks) const {
    return problem_.transfers ? costs_.boundary(ideals_.cut[ideal], ranks) : 0;
  }

  void extend(std::size_t from, int ranks_before, int left, double value) {
    if (from == ideals_.last()) best_ = std::min(best_, value);
    for (std::size_t to = from + 1; to < ideals_.count(); ++to) {
      if (!ideals_.subset(from, to)) continue;
      for (int ranks = 1; ranks <= left; ++ranks) {
        double next =
            std::max(value, costs_.stage(ideals_.work(0, to) - ideals_.work(0, from),
                                         ideals_.parameters[to] - ideals_.parameters[from], ranks));
        if (ranks_before > 0) next = std::max(next, boundary(from, std::min(ranks, ranks_before)));
        extend(to, ranks, left - ranks, next);
      }
    }
  }

  const Ideals& ideals_;
  const BottleneckProblem& problem_;
  const BottleneckCosts costs_{problem_.devices, problem_.bytes_per_second, true};
  double best_ = std::numeric_limits<double>::infinity();
};

TEST(Bottleneck, EqualsBruteForce) {
  std::mt19937 random(1);
  for (int round = 0; round < 1500; ++round) {
    const Dag dag = random_graph(random, 1 + round % 7, 0.15 + 0.1 * (round % 7));
    BottleneckProblem problem;
    problem.devices = 1 + round % 4;
    problem.transfers = round % 3 != 0;
    problem.bytes_per_second = round % 2 == 0 ? 1e9 : 4e9;
    const std::optional<Ideals> ideals = enumerate_ideals(dag);
    const BottleneckPlan plan = plan_bottleneck(dag, problem);

    const double best = BruteForce(*ideals, problem).best();
    ASSERT_NEAR(plan.value, best, 1e-9 * best) << "round " << round;
    ASSERT_NEAR(bottleneck_value(dag, problem, plan.stages), plan.value, 1e-12);
    ASSERT_LE(plan.lower_bound, plan.value);
    ASSERT_GE(plan.lower_bound, best * (1 - 2e-9));
    ASSERT_EQ(plan.certainty, Certainty::kOptimal);
    ASSERT_EQ(plan.ideals, ideals->count() - 1);
  }
}

struct Expected {
  const char* graph;
  double transfers4, transfers8, none4, none8;
};

// tests/operator/planner/README.md "Smallest bottleneck".
TEST(Bottleneck, OfThePublishedGraphsIsAsPublished) {
  for (const Expected& expected : {Expected{"alexnet", .034217, .018874, .023166, .011620},
                                   Expected{"vgg16", .205521, .103833, .175733, .093513},
                                   Expected{"squeezenet1_0", .074414, .037693, .072329, .035963},
                                   Expected{"resnet18", .100004, .050783, .065918, .033883},
                                   Expected{"resnet50", .162881, .092012, .111497, .056315},
                                   Expected{"densenet121", .089976, .047118, .081985, .041615},
                                   Expected{"gnmt", .025868, .019285, .025868, .019032},
                                   Expected{"inception_v3", .198851, .101883, .176463, .086884}}) {
    const Dag dag = pipedream_graph(expected.graph);
    const std::optional<Ideals> ideals = enumerate_ideals(dag);
    ASSERT_TRUE(ideals);
    for (const auto& [devices, transfers, value] : {std::tuple{4, true, expected.transfers4},
                                                    {8, true, expected.transfers8},
                                                    {4, false, expected.none4},
                                                    {8, false, expected.none8}}) {
      BottleneckProblem problem;
      problem.devices = devices;
      problem.transfers = transfers;
      const BottleneckPlan plan = plan_bottleneck(dag, problem, &*ideals);
      EXPECT_NEAR(plan.value, value, 5.1e-7) << expected.graph << " " << devices << transfers;
      EXPECT_EQ(plan.certainty, Certainty::kOptimal) << expected.graph;
      EXPECT_NEAR(bottleneck_value(dag, problem, plan.stages), plan.value, 1e-12);
    }
  }
}

// The worked example of tests/operator/planner/README.md "Smallest bottleneck".
TEST(Bottleneck, OfVgg16IsTheBoundaryOfThreeRanksBeforeOne) {
  EXPECT_NEAR((BottleneckCosts{3, 1e9, true}.stage(514'238'000, 6'941'952, 3)), 0.177583, 5e-7);
  EXPECT_NEAR((BottleneckCosts{3, 1e9, true}.boundary(102'760'448, 3)), 0.068507, 5e-7);
  const Dag dag = pipedream_graph("vgg16");
  BottleneckProblem problem;
  problem.devices = 4;
  const BottleneckPlan plan = plan_bottleneck(dag, problem);
  ASSERT_EQ(plan.stages.size(), 2U);
  EXPECT_EQ(plan.stages[0].nodes.size(), 17U);
  EXPECT_EQ(plan.stages[0].ranks, 3);
  EXPECT_EQ(plan.stages[1].ranks, 1);
}

TEST(Bottleneck, DoesNotDependOnTheOrderOfNodes) {
  std::mt19937 random(2);
  for (int round = 0; round < 40; ++round) {
    const Dag dag = random_graph(random, 12, 0.2);
    std::vector<std::pair<int, int>> edges;
    std::vector<int> order(12);
    for (int i = 0; i < 12; ++i) order[static_cast<std::size_t>(i)] = i;
    // Swap neighbours that no edge connects: another topological order.
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      const auto& consumers = dag.successors[static_cast<std::size_t>(order[i])];
      if (std::find(consumers.begin(), consumers.end(), order[i + 1]) == consumers.end()) {
        std::swap(order[i], order[i + 1]);
      }
    }
    Dag other;
    other.nodes = 12;
    other.classes.resize(1);
    std::vector<int> place(12);
    for (int i = 0; i < 12; ++i) {
      const auto node = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      place[node] = i;
      other.classes[0].forward.push_back(dag.classes[0].forward[node]);
      other.classes[0].backward.push_back(dag.classes[0].backward[node]);
      other.parameters.push_back(dag.parameters[node]);
      other.output.push_back(dag.output[node]);
    }
    for (std::size_t from = 0; from < 12; ++from) {
      for (const int to : dag.successors[from]) {
        edges.emplace_back(place[from], place[static_cast<std::size_t>(to)]);
      }
    }
    BottleneckProblem problem;
    problem.devices = 5;
    EXPECT_EQ(plan_bottleneck(dag, problem).value,
              plan_bottleneck(dag_from(std::move(other), edges), problem).value);
  }
}

// Blocks of parallel branches in a row: over 10^9 ideals.
Dag wide_graph(int blocks, int branches, int length) {
  Dag dag;
  dag.classes.resize(1);
  std::vector<std::pair<int, int>> edges;
  const auto add = [&](std::int64_t work) {
    dag.classes[0].forward.push_back(work);
    dag.classes[0].backward.push_back(2 * work);
    dag.parameters.push_back(1'000'000 + work);
    dag.output.push_back(2'000'000 + 1000 * (dag.nodes % 17));
    return dag.nodes++;
  };
  int tail = add(100'000);
  for (int b = 0; b < blocks; ++b) {
    std::vector<int> ends;
    for (int branch = 0; branch < branches; ++branch) {
      int at = tail;
      for (int i = 0; i < length; ++i) {
        const int next = add(1'000'000 + 50'000 * ((b + branch * 3 + i) % 7));
        edges.emplace_back(at, next);
        at = next;
      }
      ends.push_back(at);
    }
    tail = add(100'000);
    for (const int end : ends) edges.emplace_back(end, tail);
  }
  return dag_from(std::move(dag), edges);
}

TEST(Bottleneck, OverTooManyIdealsIsAPlanWithACertifiedGap) {
  const Dag dag = wide_graph(6, 8, 12);
  BottleneckProblem problem;
  problem.devices = 8;
  problem.bytes_per_second = 1e10;
  const BottleneckPlan plan = plan_bottleneck(dag, problem);

  EXPECT_EQ(plan.certainty, Certainty::kGap);
  EXPECT_GT(plan.lower_bound, 0);
  EXPECT_LE(plan.value, 1.05 * plan.lower_bound);
  EXPECT_NEAR(bottleneck_value(dag, problem, plan.stages), plan.value, 1e-12);
}

TEST(Bottleneck, StoppedEarlyIsAPlanWithABound) {
  const Dag dag = pipedream_graph("gnmt");
  BottleneckProblem problem;
  problem.devices = 8;
  problem.most_pairs = 0;
  const BottleneckPlan plan = plan_bottleneck(dag, problem);

  EXPECT_EQ(plan.certainty, Certainty::kGap);
  EXPECT_LE(plan.lower_bound, 0.019285);
  EXPECT_GE(plan.value, 0.019284);
  EXPECT_NEAR(bottleneck_value(dag, problem, plan.stages), plan.value, 1e-12);
}

// Inception-v3 at 16 devices takes over 10^9 pairs: the bound still rises above perfect division.
TEST(Bottleneck, WithinABudgetRaisesTheBound) {
  const Dag dag = pipedream_graph("inception_v3");
  BottleneckProblem problem;
  problem.devices = 16;
  problem.most_pairs = 4'000'000;
  const BottleneckPlan plan = plan_bottleneck(dag, problem);

  EXPECT_EQ(plan.certainty, Certainty::kGap);
  EXPECT_GT(plan.lower_bound, 0.689038 / 16);
  EXPECT_LE(plan.lower_bound, 0.061632);
  EXPECT_NEAR(plan.value, 0.061632, 0.0007);
}

TEST(Bottleneck, StopsWhenAsked) {
  const Dag dag = pipedream_graph("inception_v3");
  BottleneckProblem problem;
  problem.devices = 16;
  int asked = 0;
  problem.stop = [&] { return ++asked > 2; };
  const BottleneckPlan plan = plan_bottleneck(dag, problem);

  EXPECT_GT(asked, 2);
  EXPECT_EQ(plan.certainty, Certainty::kGap);
  EXPECT_NEAR(bottleneck_value(dag, problem, plan.stages), plan.value, 1e-12);
}

}  // namespace engine_test
}  // namespace weir::planner
