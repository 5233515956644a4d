// SPDX-License-Identifier: Apache-2.0
// The synchronous engine: tests/operator/planner/README.md "Synchronous regression", its options.
#include "operator/planner/sync/engine.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/sync/bounds.h"
#include "operator/planner/sync/candidates.h"
#include "operator/planner/sync/space.h"
#include "tests/operator/planner/graph/graphs.h"

namespace weir::planner {
namespace engine_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LinkRate link_of(double bytes_per_second, std::chrono::nanoseconds latency = {}) {
  LinkRate link;
  link.bytes_per_second = bytes_per_second;
  link.latency = latency;
  return link;
}

void connect(SyncRequest& request, const LinkRate& link) {
  request.links.assign(request.classes.size(), std::vector<LinkRate>(request.classes.size(), link));
  request.rings.assign(request.classes.size(), link);
}

SyncClass class_of(int column, int count, std::int64_t usable_bytes = 0) {
  SyncClass device;
  device.columns = {column};
  device.count = count;
  device.usable_bytes = usable_bytes;
  return device;
}

// The clusters of tests/operator/planner/README.md "Synchronous regression".
SyncRequest table_request(int fast, int slow, int k) {
  SyncRequest request;
  request.formula = SyncFormula::kSync0;
  request.classes = {class_of(0, fast, 32'000'000'000)};
  if (slow > 0) request.classes.push_back(class_of(1, slow, 16'000'000'000));
  connect(request, link_of(1e9));
  request.k_min = request.k_max = k;
  request.most_ranks = 0;
  return request;
}

Dag two_class_graph(const std::string& name) {
  const auto model = decode_graph(text_of_file("pipedream/" + name + ".txt"), name);
  return *dag_of(*model, {{"A", 1, 1}, {"B", 2, 1}}, 1);
}

TEST(Sync0, ReproducesTheTableOfValues) {
  struct Row {
    const char* name;
    double values[4];
  };
  const Row rows[] = {{"alexnet", {0.448035, 0.338839, 0.356951, 0.356951}},
                      {"vgg16", {3.511870, 1.650764, 2.709885, 2.737882}},
                      {"squeezenet1_0", {1.148955, 0.579471, 0.968063, 0.968063}},
                      {"resnet18", {1.109105, 0.601311, 1.065401, 1.065401}},
                      {"resnet50", {1.927018, 1.065737, 1.851993, 1.851993}},
                      {"densenet121", {1.352493, 0.708162, 0.999125, 0.999125}},
                      {"gnmt", {0.518980, 0.397952, 0.467062, 0.467062}}};
  const int fast[] = {4, 8, 4, 4}, slow[] = {0, 0, 4, 4}, k[] = {1, 1, 1, 3};
  for (const Row& row : rows) {
    const Dag dag = two_class_graph(row.name);
    const Ideals ideals = *enumerate_ideals(dag);
    for (std::size_t c = 0; c < 4; ++c) {
      const auto plans = plan_sync(dag, ideals, table_request(fast[c], slow[c], k[c]));
      ASSERT_TRUE(plans.ok()) << row.name;
      EXPECT_NEAR(plans->candidates.front().value, row.values[c], 5e-7) << row.name << " " << c;
      EXPECT_TRUE(plans->certificate.optimal) << row.name;
      EXPECT_EQ(plans->certificate.formula, "sync0");
    }
  }
}

// 222 thousand ideals; the mixed values were unknown.
TEST(Sync0, PlansInceptionOverAllIdeals) {
  const Dag dag = two_class_graph("inception_v3");
  const Ideals ideals = *enumerate_ideals(dag);
  EXPECT_NEAR(plan_sync(dag, ideals, table_request(4, 0, 1))->candidates.front().value, 2.919120,
              5e-7);
  const auto plans = plan_sync(dag, ideals, table_request(8, 0, 1));
  EXPECT_NEAR(plans->candidates.front().value, 1.568205, 5e-7);
  EXPECT_TRUE(plans->certificate.optimal && plans->certificate.complete);
  EXPECT_LT(plans->boundaries, 5000U) << "the relaxation rules out nearly all";
}

TEST(Sync0, SaysGapWhenTheBudgetIsSpent) {
  const Dag dag = two_class_graph("gnmt");
  SyncRequest request = table_request(4, 4, 1);
  request.most_pairs = 500;
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_TRUE(plans.ok());
  const Certificate& certificate = plans->certificate;
  EXPECT_FALSE(certificate.optimal);
  EXPECT_GT(certificate.gap, 0);
  EXPECT_LE(certificate.lower_bound, 0.467063) << "the optimum";
  EXPECT_GE(plans->candidates.front().value, 0.467061);
}

TEST(Sync0, RefusesMoreDevicesThanItCanCount) {
  const Dag dag = two_class_graph("alexnet");
  SyncRequest request = table_request(200, 200, 1);
  EXPECT_FALSE(plan_sync(dag, *enumerate_ideals(dag), request).ok());
}

// A chain of equal layers: f, b in milliseconds.
Dag chain(int layers, int f, int b, std::int64_t output) {
  Dag dag;
  dag.nodes = layers;
  dag.classes.resize(2);
  std::vector<std::pair<int, int>> edges;
  for (int i = 0; i < layers; ++i) {
    for (std::size_t c = 0; c < 2; ++c) {
      const auto times = static_cast<std::int64_t>(1'000'000 * (c + 1));
      dag.classes[c].forward.push_back(f * times);
      dag.classes[c].backward.push_back(b * times);
    }
    dag.layer.push_back(i);
    dag.output.push_back(output);
    if (i > 0) edges.emplace_back(i - 1, i);
  }
  return dag_from(std::move(dag), edges);
}

SyncRequest sync_request(int fast, int slow, double rate) {
  SyncRequest request;
  request.classes = {class_of(0, fast)};
  if (slow > 0) request.classes.push_back(class_of(1, slow));
  connect(request, link_of(rate));
  request.k_max = 4;
  return request;
}

TEST(Sync, EqualStagesOnFreeLinksAre1F1B) {
  const Dag dag = chain(8, 1, 2, 0);
  SyncRequest request = sync_request(4, 0, 1e9);
  request.micro_batches = 32;
  request.k_max = 1;
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_TRUE(plans.ok());
  const Candidate& best = plans->candidates.front();
  EXPECT_NEAR(best.value, 0.210, 1e-9) << "(M+S-1)(f+b)";
  EXPECT_THAT(best.ideals, ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(best.caps, ElementsAre(4, 3, 2, 1));
  EXPECT_EQ(best.dispatch, schedule::Dispatch::kStrict);
  EXPECT_LE(plans->certificate.lower_bound, best.value);
  EXPECT_GT(plans->certificate.lower_bound, 0.95 * best.value) << "4 % at M = 8S";
}

TEST(Sync, SlowLinksAskForMoreInFlight) {
  const Dag dag = chain(4, 10, 20, 10'000'000);  // 10 ms a boundary
  SyncRequest request = sync_request(4, 0, 1e9);
  request.micro_batches = 32;
  request.least_stages = 4;
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_TRUE(plans.ok());
  EXPECT_GE(plans->candidates.front().k, 2);
  EXPECT_EQ(plans->candidates.front().dispatch, schedule::Dispatch::kHint);
  EXPECT_LE(plans->candidates.front().value, 1.111) << "105 + 6c, worker/schedule/README.md";
  EXPECT_GE(plans->candidates.size(), 4U) << "every k has a plan";
}

TEST(Sync, OneMicroBatchEndsAtOnce) {
  const Dag dag = chain(6, 1, 2, 1000);
  SyncRequest request = sync_request(3, 0, 1e9);
  request.micro_batches = 1;
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_TRUE(plans.ok());
  EXPECT_EQ(plans->candidates.front().stages(), 1U) << "stages would only wait for each other";
  EXPECT_TRUE(plans->certificate.optimal);
  EXPECT_LT(plans->pairs, 10'000);
}

TEST(Sync, SlackCapsSaveMemory) {
  Dag dag = chain(4, 10, 20, 10'000'000);
  dag.stash.assign(4, 100'000'000);
  SyncRequest request = sync_request(4, 0, 1e9);
  request.micro_batches = 32;
  request.least_stages = 4;
  request.slack = true;
  request.classes[0].usable_bytes = 800'000'000;  // 7 in flight and buffers, not 8
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_TRUE(plans.ok());
  EXPECT_THAT(plans->candidates.front().caps, ElementsAre(7, 5, 3, 1));
}

TEST(Sync, FixedCapsFixTheNumberOfStages) {
  const Dag dag = chain(6, 1, 2, 1000);
  SyncRequest request = sync_request(4, 0, 1e9);
  request.caps = {5, 2, 1};
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_TRUE(plans.ok());
  for (const Candidate& candidate : plans->candidates) {
    EXPECT_THAT(candidate.caps, ElementsAre(5, 2, 1));
    EXPECT_EQ(candidate.stages(), 3U);
  }
}

TEST(Sync, RangesOfStagesHold) {
  const Dag dag = chain(6, 1, 2, 1000);
  SyncRequest request = sync_request(2, 2, 1e9);
  request.most_stages = 4;
  request.classes[0].first_stage = 2;  // the fast ones only behind
  request.classes[1].last_stage = 1;
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_TRUE(plans.ok());
  for (const Candidate& candidate : plans->candidates) {
    for (std::size_t s = 0; s < candidate.stages(); ++s) {
      EXPECT_EQ(candidate.classes[s], s < 2 ? 1 : 0);
    }
  }
  const std::vector<std::vector<int>> orders = class_orders(request, 4, 6);
  EXPECT_THAT(orders, ElementsAre(ElementsAre(0, 0, 1, 1)));
}

TEST(Sync, IdleDevicesOnlyWhereAllowed) {
  const Dag dag = chain(4, 1, 2, 50'000'000);  // 50 ms a boundary: one stage is best
  SyncRequest request = sync_request(3, 0, 1e9);
  const Ideals ideals = *enumerate_ideals(dag);
  EXPECT_EQ(plan_sync(dag, ideals, request)->candidates.front().stages(), 1U);
  request.use_all_devices = true;
  EXPECT_EQ(plan_sync(dag, ideals, request)->candidates.front().stages(), 3U);
}

TEST(Sync, NamesTheLayerThatFitsNowhere) {
  Dag dag = chain(4, 1, 2, 1000);
  dag.state_factor = 4;
  dag.parameters[2] = 1 << 30;
  SyncRequest request = sync_request(4, 0, 1e9);
  request.classes[0].usable_bytes = 3LL << 30;
  const auto one = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.error().message, "layer 2 alone needs 4.0 GiB, a device has 3.0 GiB usable");

  dag.parameters.assign(4, 700 << 20);
  request.classes[0].count = 2;
  const auto all = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_FALSE(all.ok());
  EXPECT_THAT(all.error().message, HasSubstr("no cut into stages fits with k=1"));
}

TEST(Sync, MeasuredTimesOfSplitMicroBatchesAreUsed) {
  const Dag dag = chain(2, 10, 20, 1'000'000'000);  // 1 s a boundary
  SyncRequest request = sync_request(2, 0, 1e9);
  request.most_ranks = 0;
  request.k_max = 1;
  EXPECT_EQ(plan_sync(dag, *enumerate_ideals(dag), request)->candidates.front().ranks.front(), 2);
  request.classes[0].columns = {0, 1};  // two ranks take twice as long together: no gain
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  EXPECT_EQ(plans->candidates.front().ranks.front(), 1);
}

TEST(Sync, ManyUnequalDevicesArePlannedInBlocks) {
  const Dag dag = chain(40, 5, 10, 1'000'000);
  SyncRequest request = sync_request(16, 16, 1e9);
  request.most_stages = 32;
  request.micro_batches = 64;
  request.k_max = 2;
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_TRUE(plans.ok());
  // 0.6 s of work on 24 units, 64 times, at the very least.
  EXPECT_GE(plans->certificate.lower_bound, 64 * 0.6 / 24 * 0.999);
  EXPECT_LE(plans->certificate.gap, 0.5);
  EXPECT_GE(plans->candidates.front().stages(), 20U);
}

TEST(Sync, KindsTooManyToCountStillGetABound) {
  const Dag dag = chain(40, 5, 10, 1000);
  SyncRequest request;
  for (int c = 0; c < 5; ++c) {
    request.classes.push_back(class_of(c % 2, 8));
    request.classes.back().usable_bytes = (c + 1) * 1'000'000'000LL;
  }
  connect(request, link_of(1e9));
  request.most_stages = 40;
  request.micro_batches = 64;
  const auto plans = plan_sync(dag, *enumerate_ideals(dag), request);
  ASSERT_TRUE(plans.ok());
  EXPECT_GT(plans->certificate.lower_bound, 64 * 0.6 / 32 * 1.2) << "24 fast, 16 half as fast";
  EXPECT_LT(plans->certificate.gap, 1.0) << "one layer a stage is not divisible";
}

TEST(Sync, EqualInputGivesEqualPlans) {
  const Dag dag = two_class_graph("squeezenet1_0");
  const Ideals ideals = *enumerate_ideals(dag);
  SyncRequest request = table_request(2, 2, 1);
  request.formula = SyncFormula::kSync;
  request.k_max = 3;
  const auto first = plan_sync(dag, ideals, request), second = plan_sync(dag, ideals, request);
  EXPECT_EQ(first->candidates, second->candidates);
  EXPECT_EQ(first->certificate.lower_bound, second->certificate.lower_bound);
}

TEST(LeastStep, CountsTheFill) {
  const Dag dag = chain(8, 1, 2, 0);  // 24 ms of work
  const Ideals ideals = *enumerate_ideals(dag);
  SyncRequest request = sync_request(4, 0, 1e9);
  const SyncModel model(dag, ideals, request);
  // 16 x 24 ms / (1 + 15/16 + (15/16)^2 + (15/16)^3)
  EXPECT_NEAR(least_step(model), 16 * 0.024 / 3.640380859375, 1e-6);
  EXPECT_NEAR(least_period(model), 0.006, 1e-9);
  request.micro_batches = 1;
  EXPECT_NEAR(least_step(SyncModel(dag, ideals, request)), 0.024, 1e-9) << "one at a time";
}

TEST(CapChoices, AreDoubledBeyondEight) {
  SyncRequest request;
  request.micro_batches = 64;
  request.k_max = 40;
  std::vector<int> ks;
  for (const CapChoice& choice : cap_choices(request)) ks.push_back(choice.k);
  EXPECT_THAT(ks, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 40));
}

}  // namespace engine_test
}  // namespace weir::planner
