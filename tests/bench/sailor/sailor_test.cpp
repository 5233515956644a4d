// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/sailor/sailor.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

namespace weir::planner {
namespace sailor_test {

constexpr double kGiB = 1073741824;

std::string text_of_file(const std::string& name) {
  std::ifstream file(WEIR_SOURCE_DIR "/tests/data/planner/sailor/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

SailorProblem opt_350m(int a100, int v100) {
  SailorProblem problem;
  for (const auto& [name, count, gib] :
       {std::tuple{"A100-40", a100, 40}, std::tuple{"V100-16", v100, 16}}) {
    const std::string file = std::string("opt-350m-") + name + ".json";
    problem.devices.push_back(
        {name, *decode_sailor_times(text_of_file(file), file), count, gib * kGiB});
  }
  problem.sizes = *decode_sailor_sizes(text_of_file("llm_info.json"), "OPT-350", "info");
  problem.network = *decode_sailor_network(text_of_file("network_coeffs_all_homo.json"), "network");
  return problem;
}

// tests/operator/planner/README.md "Sailor": the plan that it prints for 32 + 96 devices.
SailorPlan published() {
  SailorPlan plan;
  plan.replicas = 27;
  plan.micro_batch_size = 2;
  plan.stages = {{0, 13, {{0, 1, 3}, {1, 4, 24}}}, {13, 26, {{0, 1, 27}}}};
  return plan;
}

TEST(Sailor, PublishedPlanCostsWhatSailorSays) {
  const Result<double> seconds = sailor_seconds(opt_350m(32, 96), published());
  ASSERT_TRUE(seconds.ok()) << seconds.error().message;
  EXPECT_NEAR(*seconds, 5.2597, 5e-5);
}

TEST(Sailor, PlanOf32And96DevicesIsCostedAsEvaluated) {
  const SailorProblem problem = opt_350m(32, 96);
  const Result<SailorPlan> plan = plan_sailor(problem);

  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(plan->finished);
  EXPECT_NEAR(*sailor_seconds(problem, *plan), plan->seconds, 1e-12);
  EXPECT_LT(plan->seconds, 5.2597);
}

// Small enough to try every cut, option and D.
double brute_force(const SailorProblem& problem) {
  const int layers = static_cast<int>(problem.sizes.begin()->second.size());
  double best = std::numeric_limits<double>::infinity();
  SailorPlan plan;
  const auto extend = [&](const auto& self, int first) -> void {
    if (first == layers) {
      const Result<double> seconds = sailor_seconds(problem, plan);
      if (seconds.ok()) best = std::min(best, *seconds);
      return;
    }
    for (int end = first + 1; end <= layers; ++end) {
      for (int device = 0; device < static_cast<int>(problem.devices.size()); ++device) {
        for (const int degree : {1, 2}) {
          plan.stages.push_back({first, end, {{device, degree, plan.replicas}}});
          self(self, end);
          plan.stages.pop_back();
        }
      }
    }
  };
  for (plan.micro_batch_size = 1; plan.micro_batch_size <= 2; ++plan.micro_batch_size) {
    for (plan.replicas = 1; plan.replicas <= 4; ++plan.replicas) extend(extend, 0);
  }
  return best;
}

TEST(Sailor, PlanEqualsBruteForceOnSmallModels) {
  std::mt19937 random(12);
  const auto real = [&](double low, double high) {
    return std::uniform_real_distribution<>(low, high)(random);
  };
  int planned = 0;
  for (int round = 0; round < 60; ++round) {
    const std::size_t layers = 1 + static_cast<std::size_t>(round % 4);
    SailorProblem problem;
    problem.global_batch = 8;
    problem.most_degree = 2;
    for (const char* name : {"A", "B"}) {
      SailorDevices devices{name, {}, 1 + round % 4, 0};
      devices.memory_bytes = real(2.2e9, 6e9);
      devices.times.layers = layers;
      for (const int samples : {1, 2}) {
        for (const int degree : {1, 2}) {
          auto& entry = devices.times.entries[{samples, degree}];
          for (std::size_t i = 0; i < layers; ++i) {
            entry.push_back({real(0.01, 0.1), real(0.01, 0.1), real(0, 0.01)});
          }
        }
      }
      problem.devices.push_back(std::move(devices));
      // Flat rates: the AllReduce grows with D, as the search takes for granted.
      for (const int count : {1, 2}) {
        problem.network.between[{name, count}] = {0, 0, real(0.5, 4), 5e9};
      }
    }
    for (const int degree : {1, 2}) {
      for (std::size_t i = 0; i < layers; ++i) {
        problem.sizes[degree].push_back({real(1e6, 2e7), real(1e5, 1e7), real(1e6, 1e8)});
      }
    }
    const double best = brute_force(problem);
    const Result<SailorPlan> plan = plan_sailor(problem);
    ASSERT_EQ(plan.ok(), std::isfinite(best)) << "round " << round;
    if (!plan.ok()) continue;
    ++planned;
    EXPECT_NEAR(plan->seconds, best, 1e-9) << "round " << round;
  }
  EXPECT_GT(planned, 30);
}

TEST(Sailor, RefusesPlansThatBreakARule) {
  const SailorProblem problem = opt_350m(32, 96);
  const auto refusal = [&](const SailorPlan& plan) {
    const Result<double> seconds = sailor_seconds(problem, plan);
    return seconds.ok() ? "accepted" : seconds.error().message;
  };
  SailorPlan plan = published();
  plan.stages[1].first = 14;
  EXPECT_EQ(refusal(plan), "sailor: stage 1: layers not in a row");
  plan = published();
  plan.stages[1].groups[0].replicas = 26;
  EXPECT_EQ(refusal(plan), "sailor: stage 1: not one group for each replica");
  plan = published();
  plan.stages[0].groups = {{0, 1, 27}};
  EXPECT_EQ(refusal(plan), "sailor: 54 of 32 A100-40");
  plan = published();
  plan.stages[0].groups[1].degree = 3;
  EXPECT_EQ(refusal(plan), "sailor: stage 0: no profile of V100-16 with 2 samples, degree 3");
  plan = published();
  plan.stages[0].groups[1].device = 2;
  EXPECT_EQ(refusal(plan), "sailor: stage 0: no such device");
  plan = published();
  plan.stages.pop_back();
  EXPECT_EQ(refusal(plan), "sailor: layers are missing");
  SailorProblem small = opt_350m(32, 96);
  small.devices[1].memory_bytes = 5e9;
  EXPECT_EQ(sailor_seconds(small, published()).error().message,
            "sailor: stage 0: does not fit into V100-16");
}

TEST(Sailor, SaysWhenNothingFits) {
  SailorProblem problem = opt_350m(2, 2);
  for (SailorDevices& devices : problem.devices) devices.memory_bytes = 2.1e9;
  EXPECT_EQ(plan_sailor(problem).error().message, "sailor: no plan fits into the devices' memory");
}

TEST(Sailor, StopsAtItsLimitAndSaysSo) {
  SailorProblem problem = opt_350m(32, 96);
  problem.most_steps = 2000;
  const Result<SailorPlan> plan = plan_sailor(problem);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->finished);
}

}  // namespace sailor_test
}  // namespace weir::planner
