// SPDX-License-Identifier: Apache-2.0
// The promises of a PlanReport (tests/operator/planner/README.md "Checks": V2, V7, V8).
#include "operator/planner/report.h"

#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "operator/planner/plan.h"
#include "operator/planner/tool/check.h"
#include "operator/planner/tool/compare.h"
#include "operator/planner/tool/report_json.h"
#include "operator/planner/tool/simulate_plan.h"
#include "worker/base/random.h"

namespace weir::planner {
namespace report_test {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using testing::IsEmpty;

// A graph of layers in topological order with random branches; class "A", proportional.
Model random_model(std::uint64_t seed, int layers) {
  Random random(seed);
  Model model;
  model.name = "random";
  model.scaling = Scaling::kProportional;
  for (int i = 0; i < layers; ++i) {
    Layer layer;
    layer.id = "n" + std::to_string(i);
    layer.parameter_bytes = static_cast<std::int64_t>(random.uniform() * 4e6);
    layer.output_bytes_per_sample = static_cast<std::int64_t>(random.uniform() * 3e6);
    layer.stash_bytes_per_sample = 2 * layer.output_bytes_per_sample;
    const nanoseconds forward(static_cast<std::int64_t>(1e6 + random.uniform() * 9e6));
    layer.times["A"] = {{1, forward, 2 * forward, 100us}};
    model.layers.push_back(std::move(layer));
    if (i == 0) continue;
    model.edges.emplace_back(static_cast<int>(random.uniform() * i), i);
    if (random.uniform() < 0.5) model.edges.emplace_back(i - 1, i);
  }
  return model;
}

Cluster servers(int fast, int slow) {
  Cluster cluster;
  cluster.classes = {{"A", 2'000'000'000, 0.1, 1}, {"B", 1'000'000'000, 0.1, 2}};
  cluster.default_latency = 20us;
  for (int d = 0; d < fast + slow; ++d) {
    Device device;
    device.node = "s" + std::to_string(d / 2);
    device.pod = "p" + std::to_string(d);
    device.device_class = d < fast ? "A" : "B";
    device.memory_bytes = d < fast ? 2'000'000'000 : 1'000'000'000;
    cluster.devices.push_back(std::move(device));
  }
  return cluster;
}

Request free_request() {
  Request request;
  request.global_batch = 16;
  request.micro_batch_size = 1;
  request.most_ranks_per_stage = 0;
  request.keep_order = false;
  request.k_max = 4;
  request.tie_of_k = 0;
  request.sensitivity = true;
  return request;
}

TEST(Report, AgreesWithTheIndependentChecker) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const Model model = random_model(seed, 6 + static_cast<int>(seed % 5));
    const Cluster cluster = servers(3, 2);
    const auto report = plan(model, cluster, free_request());
    ASSERT_TRUE(report.ok()) << report.error().message;

    const CheckedPlan checked =
        check_plan(model, cluster, report->plan, {.order = report->order, .many_ranks = true});

    EXPECT_THAT(checked.broken, IsEmpty()) << seed;
    ASSERT_EQ(checked.stages.size(), report->stages.size());
    for (std::size_t s = 0; s < checked.stages.size(); ++s) {
      const CheckedStage& theirs = checked.stages[s];
      const StageReport& ours = report->stages[s];
      EXPECT_EQ(theirs.layers, ours.nodes);
      EXPECT_NEAR(theirs.forward, ours.forward, 1e-6 * ours.forward + 1e-8);
      EXPECT_NEAR(theirs.backward, ours.backward, 1e-6 * ours.backward + 1e-8);
      EXPECT_NEAR(theirs.all_reduce, ours.sync, 1e-6 * ours.sync + 1e-9);
      EXPECT_EQ(theirs.cut_bytes, ours.cut_bytes);
      EXPECT_NEAR(theirs.send_forward, ours.send_forward, 1e-6 * ours.send_forward + 1e-9);
      EXPECT_EQ(theirs.memory.total, report->memory[s].total_bytes);
      EXPECT_LE(report->memory[s].total_bytes, report->memory[s].limit_bytes);
    }
  }
}

TEST(Report, BoundHoldsTheValueAndSimulationRepeatsIt) {
  for (std::uint64_t seed = 20; seed < 32; ++seed) {
    const Model model = random_model(seed, 9);
    const Cluster cluster = servers(static_cast<int>(seed % 4) + 1, 2);
    const auto report = plan(model, cluster, free_request());
    ASSERT_TRUE(report.ok()) << report.error().message;
    const Optimality& it = report->optimality;
    EXPECT_LE(it.lower_bound, report->objective_seconds);
    EXPECT_LE(report->objective_seconds, it.upper_bound);
    EXPECT_GT(it.lower_bound, 0);
    EXPECT_LE(report->bound_seconds, report->plan.predicted_step_seconds * (1 + 1e-9));

    const auto simulated = simulate_plan(model, cluster, report->plan, report->order);

    ASSERT_TRUE(simulated.ok()) << simulated.error().message;
    EXPECT_NEAR(simulated->step_seconds, report->plan.predicted_step_seconds,
                1e-9 * simulated->step_seconds);
  }
}

TEST(Report, RivalsAreNeverFasterThanOursByMoreThanTheyMove) {
  const Model model = random_model(5, 10);
  const Cluster cluster = servers(4, 0);
  const auto ours = plan(model, cluster, free_request());
  ASSERT_TRUE(ours.ok());
  for (const Rival rival : {Rival::kPipedream, Rival::kDappleFormula, Rival::kEven}) {
    const Comparison theirs = compare(model, cluster, free_request(), {}, rival, *ours);
    EXPECT_EQ(theirs.why_not, "") << name(rival);
    EXPECT_GE(theirs.step_seconds, ours->optimality.lower_bound) << name(rival);
    EXPECT_GE(theirs.step_seconds, ours->plan.predicted_step_seconds * 0.97) << name(rival);
  }
  EXPECT_THAT(compare(model, servers(2, 2), free_request(), {}, Rival::kPipedream, *ours).why_not,
              testing::HasSubstr("one class"));
}

TEST(Report, ACacheChangesNothing) {
  PlanCache cache;
  const Cluster before = servers(4, 0);
  Cluster after = before;
  after.links.push_back({"s0", "s1", 1e8, 0ns});
  for (const std::uint64_t seed : {3U, 4U, 3U}) {
    const Model model = random_model(seed, 9);
    for (const Cluster& cluster : {before, after}) {
      const auto cached = plan(model, cluster, free_request(), {}, &cache);
      const auto fresh = plan(model, cluster, free_request());
      ASSERT_TRUE(cached.ok() && fresh.ok());
      EXPECT_EQ(encode_report(*cached), encode_report(*fresh));
      EXPECT_EQ(cached->plan, fresh->plan);
    }
  }
}

TEST(Report, AStopIsAnAnswerWithoutAClaim) {
  Limits limits;
  limits.stop = [] { return true; };
  const auto report = plan(random_model(9, 9), servers(4, 0), free_request(), limits);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->optimality.status, "heuristic");
  EXPECT_FALSE(report->plan.stages.empty());
}

// A stop is heard inside the searches, not only between them, and there is always a plan.
TEST(Report, AStopEndsASearchUnderWay) {
  const Model model = random_model(5, 60);
  const auto whole = plan(model, servers(8, 8), free_request());
  ASSERT_TRUE(whole.ok());
  std::int64_t before = 0;
  for (const int heard : {1, 2, 4, 8}) {
    int asked = 0;
    Limits limits;
    limits.stop = [&] { return ++asked >= heard; };
    const auto report = plan(model, servers(8, 8), free_request(), limits);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->optimality.status, "heuristic");
    EXPECT_GE(report->objective_seconds, report->optimality.lower_bound);
    EXPECT_LT(report->search.pairs, whole->search.pairs);
    EXPECT_GE(report->search.pairs, before);
    before = report->search.pairs;
  }
}

TEST(Report, TooManyIdealsStillGiveABound) {
  Limits limits;
  limits.ideals = 12;
  const auto report = plan(random_model(9, 12), servers(4, 0), free_request(), limits);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->optimality.status, "gap");
  EXPECT_GT(report->optimality.lower_bound, 0);
  EXPECT_FALSE(report->search.complete);
}

// Two stages and a wide boundary: more in flight hides a slower link.
TEST(Report, SensitivityNamesTheShareAtWhichAnotherKWins) {
  Model model;
  model.scaling = Scaling::kProportional;
  for (int i = 0; i < 2; ++i) {
    Layer layer;
    layer.id = "n" + std::to_string(i);
    layer.output_bytes_per_sample = 1'000'000;  // 1 ms at 1 GB/s
    layer.times["A"] = {{1, 10ms, 20ms}};
    model.layers.push_back(std::move(layer));
  }
  Cluster cluster = servers(0, 0);
  cluster.default_bytes_per_second = 1e9;
  cluster.default_latency = 0ns;
  for (int d = 0; d < 2; ++d) {
    Device device;
    device.pod = device.node = "s" + std::to_string(d);
    device.device_class = "A";
    cluster.devices.push_back(std::move(device));
  }
  Request request = free_request();
  request.stages = 2;
  request.tie_of_k = 0.2;  // k=1, which a slow link hurts most

  const auto report = plan(model, cluster, request);

  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->plan.schedule.k, 1);
  ASSERT_EQ(report->sensitivity.size(), 1U);
  EXPECT_LT(report->sensitivity[0].step_per_share, 0);
  ASSERT_TRUE(report->sensitivity[0].switch_share.has_value());
  EXPECT_GT(report->sensitivity[0].switch_k, 1);
  EXPECT_GE(report->sensitivity[0].switch_gain, 0.03 - 1e-9);
}

TEST(Report, JsonKeepsTheOrderOfItsKeys) {
  const auto report = plan(random_model(2, 6), servers(2, 1), free_request());
  ASSERT_TRUE(report.ok());
  const std::string text = encode_report(*report);
  const auto json = nlohmann::ordered_json::parse(text);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, testing::ElementsAre("apiVersion", "objective", "optimality", "order", "stages",
                                         "memory", "timeline", "candidates", "sensitivity",
                                         "search", "idleDevices", "idleReason", "warnings"));
  EXPECT_EQ(text, encode_report(*plan(random_model(2, 6), servers(2, 1), free_request())));
}

TEST(Report, ReplicasShareTheServers) {
  Request request = free_request();
  request.data_parallel = 2;
  request.global_batch = 33;  // 17 + 16
  const auto report = plan(random_model(6, 8), servers(6, 0), request);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->plan.micro_batches, (std::vector{17, 16}));
  std::set<std::string> pods;
  for (const auto& rank : report->plan.ranks) EXPECT_TRUE(pods.insert(rank.pod).second);
  EXPECT_GT(report->stages[0].sync, 0) << "AllReduce over the replicas";
}

}  // namespace report_test
}  // namespace weir::planner
