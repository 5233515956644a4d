// SPDX-License-Identifier: Apache-2.0
// DAPPLE's score: the published figures, and the search against all plans.
#include "operator/planner/dapple/dapple.h"

#include <functional>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/operator/planner/graph/graphs.h"

namespace weir::planner {
namespace dapple_test {

// tests/operator/planner/README.md "DAPPLE": profiled with 64 samples, micro-batches of 64.
DappleProblem problem_of(const std::string& graph, std::vector<int> cards) {
  const Dag dag = pipedream_graph(graph);
  EXPECT_TRUE(dag.chain());
  DappleProblem problem;
  for (int node = 0; node < dag.nodes; ++node) {
    const auto n = static_cast<std::size_t>(node);
    problem.seconds.push_back(
        1e-9 * static_cast<double>(dag.classes[0].forward[n] + dag.classes[0].backward[n]));
    problem.output_bytes.push_back(static_cast<double>(dag.output[n]));
    problem.parameter_bytes.push_back(static_cast<double>(dag.parameters[n]));
  }
  problem.profile_batch = problem.micro_batch = 64;
  problem.global_batch = 2048;
  problem.cards = std::move(cards);
  return problem;
}

const std::vector<std::vector<int>> kShapes{{8, 8}, std::vector<int>(16, 1)};

double score_of(const DappleProblem& problem, const DapplePlan& plan) {
  const Result<double> seconds = dapple_seconds(problem, plan);
  if (!seconds.ok()) return 0;
  const double work = std::accumulate(problem.seconds.begin(), problem.seconds.end(), 0.0);
  return work * problem.global_batch / problem.profile_batch / *seconds;
}

DapplePlan one_stage(const DappleProblem& problem, int replicas, int ranks) {
  const int layers = static_cast<int>(problem.seconds.size());
  return {.replicas = replicas, .stages = {{0, layers, ranks, problem.cards}}};
}

// Every way to take `count` of these cards, servers told apart.
void each_choice(std::vector<int> free, int count, std::size_t server, std::vector<int>& taken,
                 const std::function<void()>& visit) {
  if (server == free.size()) {
    if (count == 0) visit();
    return;
  }
  for (int n = 0; n <= std::min(free[server], count); ++n) {
    taken[server] = n;
    each_choice(free, count - n, server + 1, taken, visit);
  }
  taken[server] = 0;
}

// All plans with at most so many stages, one by one.
double best_of_all(const DappleProblem& problem, int most_stages) {
  const int layers = static_cast<int>(problem.seconds.size());
  double best = 0;
  const int cards = std::accumulate(problem.cards.begin(), problem.cards.end(), 0);
  for (int replicas = 1; replicas <= cards; ++replicas) {
    DapplePlan plan{.replicas = replicas, .stages = {}};
    const std::function<void(int, std::vector<int>)> extend = [&](int first,
                                                                  const std::vector<int>& free) {
      if (first == layers) {
        best = std::max(best, score_of(problem, plan));
        return;
      }
      if (static_cast<int>(plan.stages.size()) == most_stages) return;
      const int left = std::accumulate(free.begin(), free.end(), 0) / replicas;
      for (int end = first + 1; end <= layers; ++end) {
        for (int ranks = 1; ranks <= left; ++ranks) {
          std::vector<int> taken(free.size(), 0);
          each_choice(free, ranks * replicas, 0, taken, [&] {
            std::vector<int> rest = free;
            for (std::size_t s = 0; s < rest.size(); ++s) rest[s] -= taken[s];
            plan.stages.push_back({first, end, ranks, taken});
            extend(end, rest);
            plan.stages.pop_back();
          });
        }
      }
    };
    extend(0, problem.cards);
  }
  return best;
}

TEST(Dapple, ScoresThePublishedPlansOfVgg16) {
  for (const std::vector<int>& cards : kShapes) {
    const DappleProblem problem = problem_of("vgg16", cards);

    EXPECT_NEAR(score_of(problem, one_stage(problem, 8, 2)), 10.616, 5e-4) << "what DAPPLE returns";
    EXPECT_NEAR(score_of(problem, one_stage(problem, 16, 1)), 12.727, 5e-4);
  }
}

TEST(Dapple, FindsPureDataParallelismOfVgg16) {
  for (const std::vector<int>& cards : kShapes) {
    const DappleProblem problem = problem_of("vgg16", cards);
    const Result<DapplePlan> plan = plan_dapple(problem);

    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(plan->finished);
    EXPECT_EQ(plan->replicas, 16);
    EXPECT_NEAR(plan->score, 12.727, 5e-4);
    EXPECT_NEAR(plan->score, score_of(problem, *plan), 1e-9);
  }
}

// V4: all cuts into two and three stages, all cards in use, stages on servers in turn.
TEST(Dapple, IsNeverBelowAllPlansOfFewStages) {
  for (const char* graph : {"alexnet", "vgg16"}) {
    for (const std::vector<int>& cards : kShapes) {
      const DappleProblem problem = problem_of(graph, cards);
      const Result<DapplePlan> ours = plan_dapple(problem);
      ASSERT_TRUE(ours.ok()) << graph;
      EXPECT_NEAR(ours->score, score_of(problem, *ours), 1e-9) << graph;
      const int layers = static_cast<int>(problem.seconds.size());
      for (int replicas = 1; replicas <= 16; ++replicas) {
        const int width = 16 / replicas;
        std::vector<int> free = cards;
        const auto take = [&](int count) {
          std::vector<int> taken(free.size(), 0);
          for (std::size_t s = 0; s < free.size() && count > 0; ++s) {
            taken[s] = std::min(free[s], count);
            free[s] -= taken[s];
            count -= taken[s];
          }
          return taken;
        };
        for (int a = 1; a < layers; ++a) {
          for (int b = a; b < layers; ++b) {
            for (int r = 1; r < width; ++r) {
              for (int q = 1; r + q <= width && (b > a || q == 1); ++q) {
                const bool three = b > a;
                if (three && r + q == width) continue;
                free = cards;
                DapplePlan plan{.replicas = replicas, .stages = {}};
                plan.stages.push_back({0, a, r, take(r * replicas)});
                if (three) plan.stages.push_back({a, b, q, take(q * replicas)});
                const int last = width - r - (three ? q : 0);
                plan.stages.push_back({b, layers, last, take(last * replicas)});
                ASSERT_GE(ours->score, score_of(problem, plan) * (1 - 1e-9))
                    << graph << " " << replicas << " x " << a << " " << b << " ranks " << r << " "
                    << q;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Dapple, EqualsBruteForceOnSmallModels) {
  std::mt19937 random(1);
  const auto up_to = [&](int most) { return std::uniform_int_distribution(0, most)(random); };
  const std::vector<std::vector<int>> shapes{{2, 2}, {3, 1}, {1, 1, 1}, {4}, {2, 1, 1}};
  int pipelines = 0;
  for (int i = 0; i < 300; ++i) {
    DappleProblem problem;
    const int layers = 2 + up_to(3);
    for (int layer = 0; layer < layers; ++layer) {
      problem.seconds.push_back(0.01 * (1 + up_to(20)));
      problem.output_bytes.push_back(1e6 * up_to(60));
      problem.parameter_bytes.push_back(1e6 * up_to(600));
    }
    problem.global_batch = 16;  // micro-batches are at least as many as stages
    problem.cards = shapes[static_cast<std::size_t>(up_to(4))];
    const Result<DapplePlan> plan = plan_dapple(problem);

    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(plan->finished);
    EXPECT_NEAR(plan->score, score_of(problem, *plan), 1e-9) << i;
    EXPECT_NEAR(plan->score, best_of_all(problem, layers), 1e-9) << i;
    if (plan->stages.size() > 1) ++pipelines;
  }
  EXPECT_GT(pipelines, 50) << "not only data parallelism";
}

TEST(Dapple, RefusesWhatIsNoPlan) {
  const DappleProblem problem = problem_of("alexnet", {2, 2});
  DapplePlan plan = one_stage(problem, 4, 1);
  EXPECT_TRUE(dapple_seconds(problem, plan).ok());
  plan.replicas = 3;
  EXPECT_EQ(dapple_seconds(problem, plan).error().message,
            "dapple: a stage has other cards than ranks");
  plan = one_stage(problem, 4, 1);
  plan.stages[0].end = 3;
  EXPECT_EQ(dapple_seconds(problem, plan).error().message, "dapple: layers are left out");
  plan.stages[0].first = 1;
  EXPECT_EQ(dapple_seconds(problem, plan).error().message,
            "dapple: stages do not follow each other");
  plan = one_stage(problem, 4, 1);
  plan.stages[0].cards = {4, 0};
  EXPECT_EQ(dapple_seconds(problem, plan).error().message, "dapple: too many cards of a server");
  EXPECT_EQ(plan_dapple(DappleProblem{}).error().message, "dapple: no layers");
  DappleProblem none = problem;
  none.cards = {0};
  EXPECT_EQ(plan_dapple(none).error().message, "dapple: no cards");
  none = problem;
  none.global_batch = 63;
  EXPECT_EQ(plan_dapple(none).error().message, "dapple: no micro-batch in the global batch");
  none = problem;
  none.output_bytes.pop_back();
  EXPECT_EQ(plan_dapple(none).error().message, "dapple: layers without sizes");
}

TEST(Dapple, SaysWhenItsLimitEndsTheSearch) {
  DappleProblem problem = problem_of("vgg16", {4, 4});
  for (double& bytes : problem.parameter_bytes) bytes *= 100;  // pipelines pay
  problem.most_steps = 1000;
  const Result<DapplePlan> plan = plan_dapple(problem);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->finished);
  EXPECT_NEAR(plan->score, score_of(problem, *plan), 1e-9);
}

}  // namespace dapple_test
}  // namespace weir::planner
