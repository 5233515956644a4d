// SPDX-License-Identifier: Apache-2.0
// What status names as the cause of slow steps in the whole loop: segments of the coordinator,
// the estimator, reconcile. A co-tenant takes a node's bandwidth or its device; the job only
// observes, so that no other plan hides it. WEIR_SEED=<seed> prints one.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/seeds.h"
#include "tests/sim/whole_loop.h"

namespace weir::sim {
namespace causes_sim_test {

// Seconds; usual rates of sums are known after 300.
constexpr double kBegin = 400, kHorizon = 550;

struct Told {
  double time = 0;
  api::Performance performance;
};

LoopCase quiet_case(std::uint64_t seed) {
  LoopCase one;
  one.horizon = kHorizon;
  one.shape.node_rate = 1.2e7;
  one.shape.replicas = seed % 3 == 0 ? 2 : 1;
  one.shape.tells_parts = true;
  one.regroups = false;
  Hazards hazards;
  hazards.node_share.resize(
      static_cast<std::size_t>(one.shape.workers * one.shape.replicas + one.spare_nodes));
  hazards.slow.resize(hazards.node_share.size());
  one.hazards = hazards;
  return one;
}

std::vector<Told> told_of(const LoopCase& one, std::uint64_t seed) {
  std::vector<Told> told;
  WholeLoop loop(one, "Observe", seed);
  std::optional<reconcile::Time> begin;
  loop.listen([&](reconcile::test::World& world) {
    world.decided = [&](const reconcile::test::World& at, const reconcile::Outcome& outcome) {
      if (!begin) begin = at.now;
      if (!outcome.report) return;
      told.push_back({std::chrono::duration<double>(at.now - *begin).count(),
                      outcome.report->status.performance});
    };
  });
  loop.run();
  for (const auto& what : loop.wrong()) ADD_FAILURE() << "seed " << seed << ", " << what;
  return told;
}

bool of_the_schedule(const api::Performance& performance) {
  const std::string& cause = performance.cause;
  return cause.empty() || cause == "Order" || cause == "FillAndDrain";
}

Seeds seeds() {
  return seeds_of_run(30, 30, 2);
}

void print(std::uint64_t seed, const Told& told) {
  std::printf("seed %llu, %.0f s: %s %s costs %s of %s ms\n", static_cast<unsigned long long>(seed),
              told.time, told.performance.cause.c_str(), told.performance.cause_text.c_str(),
              told.performance.cause_seconds.c_str(), told.performance.step_milliseconds.c_str());
}

// Of the seeds whose fault costs 5 % of a step, 98 % name it, as `names` says, once the segment
// holds nothing but steps with it, and 90 % tell its cost within a fifth of the truth.
template <class Plant, class Names>
void expect_named(Plant plant, Names names) {
  int costly = 0, right = 0, near = 0;
  const auto [first, last, alone] = seeds();
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    LoopCase one = quiet_case(seed);
    const std::size_t node = seed % 4;
    plant(one, node, seed);
    const auto told = told_of(one, seed);
    double before = 0;
    const Told* newest = nullptr;
    for (const Told& each : told) {
      const double step = std::strtod(each.performance.step_milliseconds.c_str(), nullptr);
      if (alone) print(seed, each);
      if (each.time < kBegin) {
        EXPECT_TRUE(of_the_schedule(each.performance)) << seed << " " << each.performance.cause;
        if (step > 0) before = step;
      }
      newest = &each;
    }
    ASSERT_NE(newest, nullptr);
    const double after = std::strtod(newest->performance.step_milliseconds.c_str(), nullptr);
    if (after < 1.05 * before) continue;
    ++costly;
    const bool named = names(newest->performance, "n" + std::to_string(node + 1));
    right += named ? 1 : 0;
    const double cost =
        1000 * std::strtod(newest->performance.cause_seconds.c_str(), nullptr) / (after - before);
    near += cost > 0.8 && cost < 1.2 ? 1 : 0;
    if (!named) print(seed, *newest);
  }
  if (alone) return;
  std::printf("%d of %d named right, %d costs right\n", right, costly, near);
  EXPECT_GE(costly, static_cast<int>(last) / 3);
  EXPECT_GE(right, costly * 98 / 100);
  EXPECT_GE(near, costly * 90 / 100);
}

TEST(CausesSim, NameTheLinksOfANodeWhoseBandwidthATenantTakes) {
  expect_named(
      [](LoopCase& one, std::size_t node, std::uint64_t seed) {
        one.hazards->node_share[node].set(kBegin, 0.06 + 0.01 * static_cast<double>(seed % 7));
      },
      [](const api::Performance& told, const std::string& node) {
        return told.cause.starts_with("Slow") && told.cause != "SlowDevice" &&
               told.cause_text.find(node) != std::string::npos;
      });
}

TEST(CausesSim, NameTheDeviceThatATenantTakes) {
  expect_named(
      [](LoopCase& one, std::size_t node, std::uint64_t seed) {
        one.hazards->slow[node].set(kBegin, 1.25 + 0.05 * static_cast<double>(seed % 10));
      },
      [](const api::Performance& told, const std::string& node) {
        return told.cause == "SlowDevice" && told.cause_text.find(node) != std::string::npos;
      });
}

}  // namespace causes_sim_test
}  // namespace weir::sim
