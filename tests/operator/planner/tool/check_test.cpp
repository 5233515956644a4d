// SPDX-License-Identifier: Apache-2.0
// V2: what the engine reports, recomputed from model, cluster and plan alone; and a plan that
// breaks each rule.
#include "operator/planner/tool/check.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/sync/engine.h"
#include "operator/planner/sync/model.h"
#include "tests/operator/planner/graph/graphs.h"
#include "worker/base/random.h"

namespace weir::planner {
namespace check_test {

using std::chrono::nanoseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Device device_of(const std::string& name, const std::string& device_class,
                 std::int64_t memory = 0) {
  Device device;
  device.pod = device.node = name;
  device.device_class = device_class;
  device.memory_bytes = memory;
  return device;
}

struct Case {
  Model model;
  Cluster cluster;
  schedule::Plan plan;
};

// Four layers in a diamond on three devices, two stages, the second on two ranks if wanted.
Case diamond() {
  Case it;
  it.model.state_factor = 4;
  const std::int64_t outputs[] = {1000, 10, 20, 1};
  for (int i = 0; i < 4; ++i) {
    Layer layer;
    layer.id = "n" + std::to_string(i);
    layer.parameter_bytes = 100 * (i + 1);
    layer.output_bytes_per_sample = outputs[i];
    layer.stash_bytes_per_sample = 7;
    layer.stash_bytes = 1;
    layer.transient_bytes = i;
    layer.times["A"] = {{1, nanoseconds(1'000'000), nanoseconds(2'000'000), nanoseconds(500)}};
    it.model.layers.push_back(layer);
  }
  it.model.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  for (const char* name : {"x", "y", "z"}) it.cluster.devices.push_back(device_of(name, "A"));
  it.cluster.default_bytes_per_second = 1e6;
  it.cluster.default_latency = nanoseconds(1000);
  it.plan.micro_batches = {4};
  it.plan.stages = {{0, 2}, {3, 3}};
  it.plan.schedule.caps = {2, 1};
  it.plan.schedule.micro_batch_size = 2;
  const auto rank = [](const char* pod, int stage) {
    schedule::RankPlace place;
    place.pod = pod;
    place.stage = stage;
    return place;
  };
  it.plan.ranks = {rank("x", 0), rank("y", 1)};
  return it;
}

TEST(Check, RecomputesAStageByHand) {
  const Case it = diamond();
  const CheckedPlan checked = check_plan(it.model, it.cluster, it.plan);

  EXPECT_THAT(checked.broken, IsEmpty());
  const CheckedStage& stage = checked.stages[0];
  EXPECT_DOUBLE_EQ(stage.forward, 3 * 0.002);
  EXPECT_DOUBLE_EQ(stage.backward, 3 * 0.004);
  EXPECT_DOUBLE_EQ(stage.update, 3 * 500e-9);
  EXPECT_EQ(stage.cut_bytes, 60) << "outputs 10 and 20 of two samples; 1000 is not needed behind";
  EXPECT_DOUBLE_EQ(stage.send_forward, 1e-6 + 60e-6);
  EXPECT_EQ(stage.memory.static_bytes, 4 * 600);
  EXPECT_EQ(stage.memory.stash_bytes, 2 * 3 * (14 + 1));
  EXPECT_EQ(stage.memory.transient_bytes, 2);
  EXPECT_EQ(stage.memory.buffer_bytes, 7 * 60);
  EXPECT_EQ(checked.stages[1].memory.buffer_bytes, 7 * 60);
  EXPECT_EQ(stage.all_reduce, 0);
}

TEST(Check, RanksThatShareAStageSplitIt) {
  Case it = diamond();
  it.plan.ranks.push_back(it.plan.ranks[1]);
  it.plan.ranks.back().pod = "z";
  EXPECT_THAT(check_plan(it.model, it.cluster, it.plan).broken,
              Contains(HasSubstr("more than one")));
  CheckOptions options;
  options.many_ranks = true;
  const CheckedPlan checked = check_plan(it.model, it.cluster, it.plan, options);
  EXPECT_THAT(checked.broken, IsEmpty());
  EXPECT_EQ(checked.stages[1].ranks, 2);
  EXPECT_DOUBLE_EQ(checked.stages[1].forward, 0.001);
  EXPECT_NEAR(checked.stages[1].all_reduce, 400e-6 + 2e-6, 1e-12) << "2 (n-1)/n of 400 bytes";
  it.cluster.devices[2].device_class = "B";
  EXPECT_THAT(check_plan(it.model, it.cluster, it.plan, options).broken,
              Contains(HasSubstr("of different classes")));
}

TEST(Check, NamesEveryBrokenRule) {
  const auto broken = [](const auto& change) {
    Case it = diamond();
    CheckOptions options;
    change(it, options);
    return check_plan(it.model, it.cluster, it.plan, options).broken;
  };
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.stages[1].first = 2; }),
              Contains(HasSubstr("is in two stages")));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.stages.pop_back(); }),
              Contains("stages: layer n3 is in none"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.stages[1].last = 9; }),
              Contains("stages[1].layers: 4 is no position"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.stages[1] = {3, 2}; }),
              Contains("stages[1].layers: holds no layer"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.stages.clear(); }), Contains("stages: empty"));
  EXPECT_THAT(broken([](Case&, CheckOptions& o) { o.order = {3, 1, 2, 0}; }),
              Contains("stages: layer n0 is behind its consumer n1"));
  EXPECT_THAT(broken([](Case&, CheckOptions& o) { o.order = {0, 1, 1, 2}; }),
              Contains("order: not every layer once"));
  EXPECT_THAT(broken([](Case&, CheckOptions& o) { o.order = {0, 1}; }),
              Contains("order: 2 positions for 4 layers"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.schedule.caps = {2}; }),
              Contains("schedule.caps: 1 values for 2 stages"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.schedule.caps = {1, 2}; }),
              Contains("schedule.caps[1]: above the stage before"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.schedule.caps = {9, 0}; }),
              testing::AllOf(Contains("schedule.caps[0]: above the micro-batches of a step"),
                             Contains("schedule.caps[1]: below 1")));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.micro_batches.clear(); }),
              Contains("microBatches: empty"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.schedule.micro_batch_size = 0; }),
              Contains("schedule.microBatchSize: below 1"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.ranks[1].pod = "x"; }),
              Contains("ranks[1]: x/0 is used twice"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.ranks[1].pod = "w"; }),
              Contains("ranks[1]: no device w/0"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.plan.ranks.pop_back(); }),
              Contains("ranks of replica 0, stage 1: none"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.cluster.devices[1].last_stage = 0; }),
              Contains("ranks[1]: y may not run stage 1"));
  EXPECT_THAT(broken([](Case& it, auto&) { it.cluster.devices[0].memory_bytes = 1000; }),
              Contains("stages[0]: needs 2912 of 900 bytes"));
}

TEST(Check, UsesTheSpeedFactorOfAClassWithoutTimes) {
  Case it = diamond();
  it.cluster.classes.push_back({"B", 0, 0.1, 3});
  it.cluster.devices[1].device_class = "B";
  EXPECT_DOUBLE_EQ(check_plan(it.model, it.cluster, it.plan).stages[1].forward, 0.006);
}

// Plans of the engine on random graphs: same cuts, times, transfers, AllReduce and memory.
TEST(Check, AgreesWithTheEngine) {
  std::mt19937 generator(7);
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const bool plain = seed % 2 == 0;
    const Dag dag = random_graph(generator, 4 + static_cast<int>(random.below(6)), 0.4);
    Model model;
    model.scaling = Scaling::kProportional;
    for (std::size_t i = 0; i < static_cast<std::size_t>(dag.nodes); ++i) {
      Layer layer;
      layer.id = std::to_string(i);
      layer.parameter_bytes = dag.parameters[i];
      layer.output_bytes_per_sample = dag.output[i];
      layer.stash_bytes_per_sample = dag.stash[i];
      layer.times["A"] = {
          {1, nanoseconds(dag.classes[0].forward[i]), nanoseconds(dag.classes[0].backward[i])}};
      model.layers.push_back(layer);
      for (const int next : dag.successors[i]) {
        model.edges.emplace_back(static_cast<int>(i), next);
      }
    }
    if (model.edges.empty()) continue;  // would be a chain
    SyncRequest request;
    request.formula = plain ? SyncFormula::kSync0 : SyncFormula::kSync;
    request.classes.resize(1);
    request.classes[0].count = 4;
    request.classes[0].usable_bytes = seed % 3 == 0 ? 800'000'000 : 0;
    request.k_max = plain ? 1 : 2;
    request.most_ranks = 2;
    LinkRate link;
    link.bytes_per_second = 1e9;
    link.latency = nanoseconds(plain ? 0 : 30'000);
    request.links = {{link}};
    request.rings = {link};
    const Ideals ideals = *enumerate_ideals(dag);
    const auto plans = plan_sync(dag, ideals, request);
    if (!plans.ok()) continue;
    const Candidate& best = plans->candidates.front();

    Cluster cluster;
    cluster.memory_reserve = 0;
    cluster.default_bytes_per_second = 1e9;
    cluster.default_latency = link.latency;
    CheckOptions options;
    options.many_ranks = true;
    options.sync0 = plain;
    schedule::Plan plan;
    plan.micro_batches = {request.micro_batches};
    plan.schedule.caps = best.caps;
    for (std::size_t s = 0; s < best.stages(); ++s) {
      const int first = static_cast<int>(options.order.size());
      for (const int v : ideals.difference(best.ideals[s], best.ideals[s + 1])) {
        options.order.push_back(v);
      }
      plan.stages.push_back({first, static_cast<int>(options.order.size()) - 1});
      for (int r = 0; r < best.ranks[s]; ++r) {
        schedule::RankPlace place;
        place.pod = "pod-" + std::to_string(cluster.devices.size());
        place.stage = static_cast<int>(s);
        plan.ranks.push_back(place);
        cluster.devices.push_back(device_of(place.pod, "A", request.classes[0].usable_bytes));
      }
    }
    ASSERT_LE(cluster.devices.size(), 4U);

    const CheckedPlan checked = check_plan(model, cluster, plan, options);

    EXPECT_THAT(checked.broken, IsEmpty()) << "seed " << seed;
    const SyncModel engine(dag, ideals, request);
    const Pipeline costs = engine.pipeline(best);
    for (std::size_t s = 0; s < best.stages(); ++s) {
      const CheckedStage& stage = checked.stages[s];
      EXPECT_NEAR(stage.forward, costs.stages[s].forward, 1e-9) << "seed " << seed;
      EXPECT_NEAR(stage.backward, costs.stages[s].backward, 1e-9);
      EXPECT_NEAR(stage.all_reduce, costs.stages[s].update, 1e-9) << "seed " << seed;
      const SyncOption& option =
          engine.options()[static_cast<std::size_t>(engine.option_of(0, best.ranks[s]))];
      EXPECT_EQ(stage.memory.total,
                engine.memory(option, best.ideals[s], best.ideals[s + 1], best.caps[s], best.k))
          << "seed " << seed;
      if (s + 1 == best.stages()) continue;
      EXPECT_EQ(stage.cut_bytes, ideals.cut[best.ideals[s + 1]]);
      EXPECT_NEAR(stage.send_forward, costs.send_forward[s], 1e-12);
      EXPECT_NEAR(stage.send_backward, costs.send_backward[s], 1e-12);
    }
  }
}

}  // namespace check_test
}  // namespace weir::planner
