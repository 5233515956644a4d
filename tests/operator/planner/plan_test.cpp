// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/plan.h"

#include <gmock/gmock.h>

#include "operator/planner/model/stage_costs.h"
#include "worker/schedule/families.h"
#include "worker/schedule/validate.h"

namespace weir::planner {
namespace plan_test {

using namespace std::chrono_literals;
using schedule::LayerRange;
using std::chrono::nanoseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kMb = 1'000'000;

Model layers(std::vector<double> forward_ms, std::int64_t output_bytes = 0) {
  Model model;
  model.name = "gpt";
  model.scaling = Scaling::kProportional;
  for (const double ms : forward_ms) {
    Layer layer;
    layer.id = "block" + std::to_string(model.layers.size());
    layer.output_bytes_per_sample = output_bytes;
    const nanoseconds forward(static_cast<std::int64_t>(ms * 1e6));
    layer.times["cpu"] = {{1, forward, 2 * forward}};
    model.layers.push_back(layer);
  }
  return model;
}

Cluster nodes(int count) {
  Cluster cluster;
  cluster.default_latency = 0ns;
  for (int d = 0; d < count; ++d) {
    Device device;
    device.pod = "pod-" + std::to_string(d);
    device.pod_uid = "uid-" + std::to_string(d);
    device.node = "node-" + std::to_string(d);
    device.ip = "10.0.0." + std::to_string(d);
    device.device_class = "cpu";
    cluster.devices.push_back(device);
  }
  return cluster;
}

Request batch_of(int global_batch, int stages, int k) {
  Request request;
  request.global_batch = global_batch;
  request.micro_batch_size = 1;
  if (stages > 0) request.stages = stages;
  if (k > 0) request.k_initial = k;
  return request;
}

PlanReport planned(const Model& model, const Cluster& cluster, const Request& request) {
  Result<PlanReport> report = plan(model, cluster, request);
  EXPECT_TRUE(report.ok()) << report.error().message;
  if (!report.ok()) return {};
  EXPECT_THAT(schedule::broken_rules(report->plan, static_cast<int>(model.layers.size())),
              IsEmpty());
  EXPECT_LE(report->lower_bound_seconds, report->objective_seconds);
  EXPECT_GT(report->lower_bound_seconds, 0);
  return *std::move(report);
}

std::string refusal(const Model& model, const Cluster& cluster, const Request& request) {
  const Result<PlanReport> report = plan(model, cluster, request);
  EXPECT_FALSE(report.ok());
  if (report.ok()) return "accepted";
  EXPECT_EQ(report.error().code,
            report.error().message.starts_with("no plan fits") ? Code::kNotFound : Code::kInvalid);
  return report.error().message;
}

TEST(Planner, CutsEqualLayersEvenly) {
  const PlanReport report =
      planned(layers(std::vector<double>(8, 5)), nodes(4), batch_of(16, 4, 1));

  EXPECT_THAT(report.plan.stages,
              ElementsAre(LayerRange{0, 1}, LayerRange{2, 3}, LayerRange{4, 5}, LayerRange{6, 7}));
  EXPECT_NEAR(report.plan.predicted_step_seconds, 19 * 0.030, 1e-6);  // (M+S-1)(f+b)
  EXPECT_NEAR(report.objective_seconds, 19 * 0.030, 1e-6);
  EXPECT_EQ(report.plan.micro_batches, std::vector{16});
  EXPECT_EQ(report.plan.schedule.caps, (std::vector{4, 3, 2, 1}));
  EXPECT_EQ(report.plan.schedule.dispatch, schedule::Dispatch::kStrict) << "k=1";
  EXPECT_EQ(report.plan.ranks[2].pod, "pod-2");
  EXPECT_EQ(report.plan.ranks[2].ip, "10.0.0.2");
  EXPECT_EQ(report.plan.ranks[2].stage, 2);
}

TEST(Planner, IsolatesTheHeavyLayer) {
  const PlanReport report = planned(layers({2, 2, 2, 9, 2, 2}), nodes(3), batch_of(32, 3, 1));
  EXPECT_THAT(report.plan.stages,
              ElementsAre(LayerRange{0, 2}, LayerRange{3, 3}, LayerRange{4, 5}));
}

TEST(Planner, AvoidsAWideBoundary) {
  Model model = layers({5, 5, 5, 5});
  model.layers[1].output_bytes_per_sample = 100 * kMb;  // 80 ms at 10 Gbit/s
  const PlanReport report = planned(model, nodes(2), batch_of(16, 2, 1));
  EXPECT_NE(report.plan.stages[0].last, 1);
  EXPECT_THAT(report.boundary_bytes, ElementsAre(0));
}

// Equal stages take 19.000 with total work 4 and M=16, late ones lighter 18.330.
TEST(Planner, LightensLateStagesWhenKIsTwo) {
  const Model model = layers(std::vector<double>(64, 1000.0 / 48));  // 4 s of work in all
  Request request = batch_of(16, 4, 2);
  request.dispatch = schedule::Dispatch::kStrict;

  const PlanReport report = planned(model, nodes(4), request);

  EXPECT_LT(report.plan.predicted_step_seconds, 18.6);
  EXPECT_GE(report.plan.predicted_step_seconds, 17.5) << "no schedule is below the bound V";
}

TEST(Planner, GivesSlowDevicesFewerLayers) {
  Model model = layers(std::vector<double>(12, 1));
  for (Layer& layer : model.layers) layer.times["slow"] = {{1, 3ms, 6ms}};
  Cluster cluster = nodes(4);
  cluster.devices[0].device_class = cluster.devices[1].device_class = "slow";

  const PlanReport report = planned(model, cluster, batch_of(32, 4, 1));

  int slow_layers = 0;
  for (std::size_t s = 0; s < 4; ++s) {
    if (report.plan.ranks[s].pod == "pod-0" || report.plan.ranks[s].pod == "pod-1")
      slow_layers += report.plan.stages[s].last - report.plan.stages[s].first + 1;
  }
  EXPECT_EQ(slow_layers, 2) << "5 + 5 layers of 3 ms fast, 1 + 1 of 9 ms slow";
}

TEST(Planner, KeepsGroupsOnTheirStages) {
  Cluster cluster = nodes(4);
  for (std::size_t d : {0U, 1U}) cluster.devices[d].first_stage = 2;
  for (std::size_t d : {2U, 3U}) cluster.devices[d].last_stage = 1;

  const PlanReport report = planned(layers(std::vector<double>(8, 5)), cluster, batch_of(16, 4, 1));

  std::vector<std::string> pods;
  for (const schedule::RankPlace& rank : report.plan.ranks) pods.push_back(rank.pod);
  EXPECT_THAT(pods, ElementsAre("pod-2", "pod-3", "pod-0", "pod-1"));
}

TEST(Planner, PutsNoBoundaryOnASlowLink) {
  Cluster cluster = nodes(4);
  const auto slow = [&](int a, int b) {
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
      cluster.links.push_back(
          {"node-" + std::to_string(from), "node-" + std::to_string(to), 5e6, nanoseconds(0)});
    }
  };
  slow(0, 1);
  slow(1, 2);

  const PlanReport report =
      planned(layers(std::vector<double>(8, 5), 100'000), cluster, batch_of(16, 4, 1));

  for (std::size_t s = 1; s < 4; ++s) {
    const LinkRate link =
        link_between(cluster, report.plan.ranks[s - 1].node, report.plan.ranks[s].node);
    EXPECT_GT(link.bytes_per_second, 5e6) << "boundary " << s - 1;
  }
}

TEST(Planner, KeepsPartnersOfWideBoundariesOnOneNode) {
  Cluster cluster = nodes(4);
  cluster.devices[3].node = cluster.devices[0].node;
  cluster.devices[2].node = cluster.devices[1].node;
  Model model = layers({5, 5, 5, 5}, 10 * kMb);
  model.layers[1].output_bytes_per_sample = 1;

  const PlanReport report = planned(model, cluster, batch_of(16, 4, 1));

  EXPECT_EQ(report.plan.ranks[0].node, report.plan.ranks[1].node);
  EXPECT_EQ(report.plan.ranks[2].node, report.plan.ranks[3].node);
}

TEST(Planner, SwapsWhenThereAreTooManyOrders) {
  Cluster cluster = nodes(9);
  cluster.links.push_back({"node-3", "node-4", 1e6, 0ns});
  const PlanReport report =
      planned(layers(std::vector<double>(9, 5), 100'000), cluster, batch_of(18, 9, 1));
  for (std::size_t s = 1; s < 9; ++s) {
    EXPECT_FALSE(report.plan.ranks[s - 1].pod == "pod-3" && report.plan.ranks[s].pod == "pod-4");
  }
}

TEST(Planner, TakesTheSmallestKThatCostsNothing) {
  const Cluster cluster = nodes(4);
  const auto k_for = [&](double seconds) {  // of one transfer; f = 10 ms, b = 20 ms
    return planned(layers({10, 10, 10, 10}, static_cast<std::int64_t>(seconds * 1.25e9)), cluster,
                   batch_of(32, 4, 0))
        .plan.schedule.k;
  };
  EXPECT_EQ(k_for(0), 1);
  EXPECT_EQ(k_for(0.00002), 1);
  EXPECT_EQ(k_for(0.010), 2) << "c <= (k-1)(f+b)/2";
  EXPECT_GE(k_for(0.028), 2);
}

TEST(Planner, RespectsTheRangeOfK) {
  Request request = batch_of(32, 4, 0);
  request.k_min = 3;
  request.k_max = 20;
  const Model model = layers({10, 10, 10, 10});
  EXPECT_EQ(planned(model, nodes(4), request).plan.schedule.k, 3);
  EXPECT_EQ(planned(model, nodes(4), batch_of(2, 4, 7)).plan.schedule.k, 2) << "clipped to M";
}

TEST(Planner, FamiliesAndFixedCapsDecideTheCaps) {
  const Model model = layers({10, 10, 10});
  Request request = batch_of(8, 3, 0);
  for (const schedule::FamilyRules& rules : schedule::families()) {
    if (rules.only_k == nullptr) continue;
    request.family = rules.family;
    EXPECT_EQ(planned(model, nodes(3), request).plan.schedule.caps,
              rules.caps(3, 8, rules.only_k(8)))
        << rules.name;
  }
  request.family = schedule::Family::kKfkb;
  request.caps = {20, 4, 1};
  const PlanReport report = planned(model, nodes(3), request);
  EXPECT_EQ(report.plan.schedule.caps, (std::vector{8, 4, 1})) << "clipped to M";
  EXPECT_EQ(report.plan.schedule.k, 3);
  EXPECT_EQ(report.plan.schedule.dispatch, schedule::Dispatch::kHint);
}

TEST(Planner, ChoosesStagesAndMicroBatchSizeWhenFree) {
  Model model = layers(std::vector<double>(8, 5));
  model.scaling = Scaling::kInterpolate;  // a second sample is free below 4
  for (Layer& layer : model.layers) layer.times["cpu"] = {{4, 20ms, 40ms}};
  Request request = batch_of(24, 0, 0);
  request.micro_batch_size.reset();

  const PlanReport report = planned(model, nodes(4), request);

  EXPECT_EQ(report.plan.schedule.micro_batch_size, 4);
  EXPECT_EQ(report.plan.micro_batches, std::vector{6});
  EXPECT_EQ(report.plan.stage_count(), 4);
}

// With one micro-batch the period does not matter: the search over it must still end.
// Times of a part of a micro-batch are known too, when a stage may divide it over its ranks.
TEST(Planner, FindsTheLeastBottleneckOfMicroBatchesThatCanBeDivided) {
  Model model = layers(std::vector<double>(4, 5));
  model.scaling = Scaling::kInterpolate;
  for (Layer& layer : model.layers) {
    layer.times["cpu"] = {{1, 5ms, 10ms}, {2, 10ms, 20ms}, {4, 20ms, 40ms}};
  }
  Request request = batch_of(16, 0, 1);
  request.micro_batch_size = 4;
  request.objective = Objective::kAsync;
  const Result<PlanReport> report = plan(model, nodes(4), request);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_NEAR(report->objective_seconds, 0.060, 1e-6);
}

TEST(Planner, EndsWithOneMicroBatch) {
  std::vector<double> times;
  for (int i = 0; i < 26; ++i) times.push_back(1 + 0.137 * i);
  for (int stages = 1; stages <= 8; ++stages) {
    const PlanReport report = planned(layers(times, 100'000), nodes(8), batch_of(1, stages, 1));
    EXPECT_EQ(report.plan.schedule.caps, std::vector<int>(static_cast<std::size_t>(stages), 1));
  }
}

TEST(Planner, SurplusPodsStayIdle) {
  const PlanReport report = planned(layers({5, 5}), nodes(4), batch_of(16, 2, 1));
  EXPECT_THAT(report.plan.idle, ElementsAre("pod-2", "pod-3"));
}

TEST(Planner, CutsForMemory) {
  Model model = layers({5, 5, 5, 5});
  model.state_factor = 4;
  model.layers[0].parameter_bytes = 200 * kMb;  // 800 MB of state
  Cluster cluster = nodes(2);
  for (Device& device : cluster.devices) device.memory_bytes = 1000 * kMb;
  for (Layer& layer : model.layers) layer.stash_bytes_per_sample = 45 * kMb;

  const PlanReport report = planned(model, cluster, batch_of(16, 2, 1));

  EXPECT_THAT(report.plan.stages, ElementsAre(LayerRange{0, 0}, LayerRange{1, 3}));
  EXPECT_THAT(report.memory_bytes, ElementsAre((800 + 2 * 45) * kMb, 3 * 45 * kMb));
}

TEST(Planner, CutsForFrozenParametersThatNobodySums) {
  Model model = layers({5, 5, 5, 5});
  model.state_factor = 4;
  for (Layer& layer : model.layers) layer.parameter_bytes = 0;
  model.layers[0].frozen_bytes = 800 * kMb;
  Cluster cluster = nodes(2);
  for (Device& device : cluster.devices) device.memory_bytes = 1000 * kMb;
  for (Layer& layer : model.layers) layer.stash_bytes_per_sample = 45 * kMb;

  const PlanReport report = planned(model, cluster, batch_of(16, 2, 1));

  EXPECT_THAT(report.plan.stages, ElementsAre(LayerRange{0, 0}, LayerRange{1, 3}));
  EXPECT_THAT(report.memory_bytes, ElementsAre((800 + 2 * 45) * kMb, 3 * 45 * kMb));
  const PipelineCosts costs = costs_of(model, cluster, report.plan);
  EXPECT_EQ(costs.static_bytes[0], 800 * kMb);
  EXPECT_EQ(costs.split[0].static_bytes, 800 * kMb);
}

// 8 bytes a number each way, half of them before the other half.
TEST(Planner, CountsTheExchangeOfTiedTables) {
  Model model = layers({5, 5, 5, 5});
  Cluster cluster = nodes(2);
  cluster.default_bytes_per_second = 1e9;
  const PlanReport untied = planned(model, cluster, batch_of(16, 2, 1));
  EXPECT_EQ(untied.tie_seconds, 0);
  model.tied_bytes = 100 * kMb;
  const PlanReport report = planned(model, cluster, batch_of(16, 2, 1));

  EXPECT_EQ(report.tied_bytes, 100 * kMb);
  EXPECT_NEAR(report.tie_seconds, 0.2, 1e-6);
  EXPECT_NEAR(report.plan.predicted_step_seconds, untied.plan.predicted_step_seconds + 0.2, 1e-6);
  EXPECT_EQ(planned(model, cluster, batch_of(16, 1, 1)).tied_bytes, 0) << "both ends on one stage";

  // Stages are worth less than the tie: one of them is faster.
  model.tied_bytes = 10'000 * kMb;
  EXPECT_EQ(planned(model, cluster, batch_of(16, 0, 1)).plan.stages.size(), 1U);
}

TEST(Planner, MemoryLimitsK) {
  Model model = layers({10, 10, 10, 10}, 12'500'000);  // c = f
  Cluster cluster = nodes(4);
  for (Layer& layer : model.layers) layer.stash_bytes_per_sample = 100 * kMb;
  for (Device& device : cluster.devices) device.memory_bytes = 1200 * kMb;
  const PlanReport report = planned(model, cluster, batch_of(32, 4, 0));
  EXPECT_EQ(report.plan.schedule.k, 2) << "k=3 would need 12 x 100 MB on stage 0";
}

TEST(Planner, SaysWhatDoesNotFit) {
  Model model = layers({5, 5, 5, 5});
  Cluster cluster = nodes(2);
  for (Device& device : cluster.devices) device.memory_bytes = 1 << 30;
  model.state_factor = 4;
  model.layers[2].parameter_bytes = 1 << 30;
  EXPECT_EQ(refusal(model, cluster, batch_of(16, 2, 1)),
            "no plan fits: layer \"block2\" alone needs 4.3 of 1.0 GB on class cpu");

  for (Layer& layer : model.layers) layer.parameter_bytes = 150'000'000;
  EXPECT_EQ(
      refusal(model, cluster, batch_of(16, 2, 1)),
      "no plan fits: no cut of gpt into at most 2 stages fits with k=1: weights and optimizer need "
      "2.4 GB, activations of one micro-batch 0.0 GB, all ranks have 1.9 GB usable");
}

TEST(Planner, RefusesWhatCannotBePlanned) {
  const Model model = layers({5, 5, 5});
  EXPECT_EQ(refusal(Model{}, nodes(1), batch_of(4, 1, 1)), "model.profile: no layers");
  EXPECT_EQ(refusal(model, nodes(0), batch_of(4, 1, 1)), "workerGroups: no rank has registered");
  EXPECT_EQ(refusal(model, nodes(1), batch_of(0, 1, 1)), "batch.globalBatchSize: below 1");
  EXPECT_EQ(refusal(model, nodes(4), batch_of(4, 4, 1)),
            "parallelism.stages: 4 is above the 3 layers of model gpt");
  EXPECT_EQ(refusal(model, nodes(2), batch_of(4, 3, 1)),
            "parallelism.stages: 3 needs as many ranks, 2 are there");
  Request request = batch_of(4, 2, 1);
  request.micro_batch_size = 3;
  EXPECT_EQ(refusal(model, nodes(2), request),
            "batch.microBatchSize: 3 does not divide the global batch of 4");
  request = batch_of(4, 2, 1);
  request.caps = {3, 2, 1};
  EXPECT_EQ(refusal(model, nodes(3), request), "schedule.inFlightCaps: 3 values for 2 stages");
  Cluster pinned = nodes(2);
  pinned.devices[0].last_stage = pinned.devices[1].last_stage = 0;
  EXPECT_EQ(refusal(model, pinned, batch_of(4, 2, 1)),
            "workerGroups: no rank is left for stage 1 (stageRange)");
  Model twisted = model;
  twisted.edges = {{1, 0}};
  EXPECT_THAT(refusal(twisted, nodes(2), batch_of(4, 2, 1)),
              HasSubstr("edge block1 -> block0 runs against the order"));
}

TEST(Planner, IsDeterministic) {
  Cluster cluster = nodes(4);
  cluster.links.push_back({"node-1", "node-2", 5e6, 0ns});
  const Model model = layers({3, 5, 7, 2, 4, 6, 5, 3}, 300'000);
  EXPECT_EQ(planned(model, cluster, batch_of(16, 0, 0)).plan,
            planned(model, cluster, batch_of(16, 0, 0)).plan);
}

TEST(Planner, CountsTheOptimizerOfStage0) {
  Model model = layers({10, 10});
  for (Layer& layer : model.layers) layer.times["cpu"][0].update = 7ms;
  const PlanReport report = planned(model, nodes(2), batch_of(4, 2, 1));
  EXPECT_NEAR(report.plan.predicted_step_seconds, 5 * 0.030 + 0.007, 1e-6);
}

TEST(Planner, StillPlansWithManyScarceKinds) {
  Cluster cluster = nodes(13);
  Model model = layers(std::vector<double>(13, 5));
  for (std::size_t d = 0; d < 13; ++d)
    cluster.devices[d].memory_bytes = (1 + static_cast<int>(d)) * kMb;
  EXPECT_EQ(planned(model, cluster, batch_of(16, 13, 1)).plan.stage_count(), 13);
  EXPECT_GE(planned(model, cluster, batch_of(16, 0, 0)).plan.stage_count(), 8);
}

// 16 kinds: too many to count, and in hardly any order may each take the first stage left.
TEST(Planner, FindsARankForEveryStageWhereRangesAllowAny) {
  Cluster cluster = nodes(16);
  for (std::size_t d = 0; d < 16; ++d) {
    cluster.devices[d].memory_bytes = (100 + static_cast<int>(5 * d % 16)) * kMb;
    cluster.devices[d].first_stage = static_cast<int>(7 * d % 16);
  }

  const PlanReport report =
      planned(layers(std::vector<double>(20, 5)), cluster, batch_of(32, 16, 1));

  ASSERT_EQ(report.plan.stage_count(), 16);
  for (const schedule::RankPlace& rank : report.plan.ranks) {
    EXPECT_EQ(rank.pod, "pod-" + std::to_string(7 * rank.stage % 16)) << "7 x 7 = 1 mod 16";
  }
}

TEST(Planner, TriesManyRanksWithoutTryingEveryNumberOfStages) {
  const PlanReport report =
      planned(layers(std::vector<double>(40, 5)), nodes(40), batch_of(64, 0, 1));
  EXPECT_EQ(report.plan.stage_count(), 40) << "free links: the more the better";
}

// A search that is cut short must not lose the plans that use the ranks.
TEST(Planner, UsesTheRanksWithTheLimitsOfTheOperator) {
  std::vector<double> forward;
  for (int i = 0; i < 96; ++i) forward.push_back(1 + i * 37 % 29 / 10.0);
  Model model = layers(forward, kMb / 10);
  for (Layer& layer : model.layers) {
    const LayerTime fast = layer.times["cpu"].front();
    layer.times["slow"] = {{fast.samples, 2 * fast.forward, 2 * fast.backward}};
  }
  for (const int ranks : {8, 16, 24, 32}) {
    Cluster cluster = nodes(ranks);
    for (int d = ranks / 2; d < ranks; ++d) cluster.devices[d].device_class = "slow";
    const Result<PlanReport> report = plan(model, cluster, batch_of(64, 0, 0), operator_limits());
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_GE(report->plan.stage_count(), ranks * 3 / 4);
  }
}

// Many ranks must not make the operator wait: work, unlike time, can be counted.
TEST(Planner, WorksNoMoreForManyRanksThanTheLimitsAllow) {
  const Model model = layers(std::vector<double>(96, 2.0), kMb);
  Cluster cluster = nodes(64);
  for (int d = 0; d < 64; ++d) cluster.devices[d].node = "node-" + std::to_string(d / 4);
  for (int a = 0; a < 16; ++a) {
    for (int b = 0; b < 16; ++b) {
      if (a == b) continue;
      cluster.links.push_back({"node-" + std::to_string(a), "node-" + std::to_string(b),
                               1e8 * (1 + (a * 7 + b * 3) % 11), 0ns});
    }
  }
  const Limits limits = operator_limits();
  for (const int replicas : {1, 8}) {
    Request request = batch_of(64, 0, 0);
    request.data_parallel = replicas;
    const Result<PlanReport> report = plan(model, cluster, request, limits);
    ASSERT_TRUE(report.ok()) << report.error().message;
    const auto& spent = report->search.details;
    const std::int64_t ops = std::int64_t{64} * 4 * report->plan.stage_count();
    EXPECT_GT(spent.at("placementWork"), 0);
    EXPECT_LE(spent.at("placementWork"), 2 * limits.placement_work);
    EXPECT_LE(spent.at("simulatedEvents"), limits.simulated_events + ops) << replicas;
  }
}

TEST(Planner, ReportsTheCostsOfItsPlan) {
  Model model = layers({10, 20, 30}, 1000);
  model.layers[1].parameter_bytes = 50;
  model.layers[1].stash_bytes_per_sample = 77;
  Cluster cluster = nodes(2);
  for (Device& device : cluster.devices) device.memory_bytes = 1000 * kMb;
  const PlanReport report = planned(model, cluster, batch_of(8, 2, 1));

  const PipelineCosts costs = costs_of(model, cluster, report.plan);

  EXPECT_EQ(costs.stages, report.stage_times);
  EXPECT_EQ(costs.boundary_bytes, report.boundary_bytes);
  EXPECT_THAT(costs.memory_limit, ElementsAre(1000 * kMb, 1000 * kMb));
  EXPECT_EQ(costs.static_bytes[0] + costs.static_bytes[1], 50 * schedule::kStateFactor);
  EXPECT_EQ(costs.stash_bytes[0] + costs.stash_bytes[1], 77);
}

}  // namespace plan_test
}  // namespace weir::planner
