// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/graph/ideals.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "operator/planner/graph/orders.h"
#include "operator/planner/graph/promising_ideals.h"
#include "tests/operator/planner/graph/graphs.h"

namespace weir::planner {
namespace ideals_test {

// Src -> P -> {A, B} -> C: tests/operator/planner/README.md "Checks", V5.
Dag diamond() {
  Dag dag;
  dag.nodes = 5;
  dag.classes.resize(1);
  dag.classes[0].forward = {1, 2, 3, 4, 5};
  dag.output = {1, 1000, 10, 20, 1};
  return dag_from(std::move(dag), {{0, 1}, {1, 2}, {1, 3}, {2, 4}, {3, 4}});
}

std::int64_t naive_cut(const Dag& dag, const Ideals& ideals, std::size_t ideal) {
  std::int64_t cut = 0;
  for (int node = 0; node < dag.nodes; ++node) {
    const auto& consumers = dag.successors[static_cast<std::size_t>(node)];
    if (ideals.has(ideal, node) && std::any_of(consumers.begin(), consumers.end(), [&](int next) {
          return !ideals.has(ideal, next);
        })) {
      cut += dag.output[static_cast<std::size_t>(node)];
    }
  }
  return cut;
}

// All downsets by trying every set of nodes.
std::set<std::uint64_t> naive_ideals(const Dag& dag) {
  std::set<std::uint64_t> result;
  for (std::uint64_t set = 0; set < std::uint64_t{1} << dag.nodes; ++set) {
    bool closed = true;
    for (int node = 0; node < dag.nodes && closed; ++node) {
      if (((set >> node) & 1U) == 0) continue;
      for (const int before : dag.predecessors[static_cast<std::size_t>(node)]) {
        closed &= ((set >> before) & 1U) != 0;
      }
    }
    if (closed) result.insert(set);
  }
  return result;
}

TEST(Ideals, OfTheDiamondCountAJoinOnce) {
  const Dag dag = diamond();
  const std::optional<Ideals> ideals = enumerate_ideals(dag);

  ASSERT_TRUE(ideals && ideals->complete);
  EXPECT_EQ(ideals->count() - 1, 6U);
  for (std::size_t i = 0; i < ideals->count(); ++i) {
    if (*ideals->set(i) == 0b01111) {
      EXPECT_EQ(ideals->cut[i], 30);
      EXPECT_EQ(ideals->forward[0][i], 10);
      EXPECT_EQ(ideals->difference(2, i), (std::vector<int>{2, 3}));
    }
  }
}

// tests/operator/planner/README.md "Graphs"
TEST(Ideals, OfThePublishedGraphsAreAsManyAsPublished) {
  for (const auto& [name, count] : {std::pair{"alexnet", 22U},
                                    {"vgg16", 40U},
                                    {"squeezenet1_0", 99U},
                                    {"resnet18", 100U},
                                    {"resnet50", 240U},
                                    {"densenet121", 430U},
                                    {"gnmt", 561U},
                                    {"inception_v3", 221564U}}) {
    const std::optional<Ideals> ideals = enumerate_ideals(pipedream_graph(name));
    ASSERT_TRUE(ideals) << name;
    EXPECT_EQ(ideals->count() - 1, count) << name;
    EXPECT_EQ(ideals->cut.back(), 0) << name;
  }
}

TEST(Ideals, EqualAllDownsetsOfRandomGraphs) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const Dag dag = random_graph(random, 1 + round % 9, 0.1 + 0.1 * (round % 6), 2);
    const std::optional<Ideals> ideals = enumerate_ideals(dag);

    ASSERT_TRUE(ideals);
    std::set<std::uint64_t> seen;
    for (std::size_t i = 0; i < ideals->count(); ++i) {
      seen.insert(*ideals->set(i));
      ASSERT_EQ(ideals->cut[i], naive_cut(dag, *ideals, i));
      ASSERT_TRUE(i == 0 || ideals->size[i - 1] <= ideals->size[i]);
      std::int64_t work = 0;
      std::int64_t parameters = 0;
      for (const int node : ideals->difference(0, i)) {
        const auto at = static_cast<std::size_t>(node);
        work += dag.classes[1].forward[at] + dag.classes[1].backward[at];
        parameters += dag.parameters[at];
      }
      ASSERT_EQ(ideals->work(1, i), work);
      ASSERT_EQ(ideals->parameters[i], parameters);
    }
    ASSERT_EQ(seen.size(), ideals->count());
    ASSERT_EQ(seen, naive_ideals(dag));
  }
}

TEST(Ideals, AboveALimitAreNotListed) {
  Dag wide;
  wide.nodes = 12;
  wide = dag_from(std::move(wide), {});

  EXPECT_EQ(enumerate_ideals(wide)->count(), 4096U);
  EXPECT_FALSE(enumerate_ideals(wide, {.most = 4095}));
  EXPECT_TRUE(enumerate_ideals(wide, {.most = 4096}));
  EXPECT_FALSE(enumerate_ideals(wide, {.most_bytes = 100'000}));
  wide.nodes = 400;
  EXPECT_FALSE(enumerate_ideals(dag_from(std::move(wide), {})));  // 2^400, answered at once
}

void expect_order(const Dag& dag, const std::vector<int>& order) {
  ASSERT_EQ(order.size(), static_cast<std::size_t>(dag.nodes));
  std::vector<bool> seen(order.size(), false);
  for (const int node : order) {
    for (const int before : dag.predecessors[static_cast<std::size_t>(node)]) {
      ASSERT_TRUE(seen[static_cast<std::size_t>(before)]);
    }
    ASSERT_FALSE(seen[static_cast<std::size_t>(node)]);
    seen[static_cast<std::size_t>(node)] = true;
  }
}

TEST(LinearOrders, AreTopologicalAndDifferent) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    const Dag dag = random_graph(random, 1 + round, 0.15);
    const std::vector<std::vector<int>> orders = linear_orders(dag);
    ASSERT_FALSE(orders.empty());
    EXPECT_EQ(std::set(orders.begin(), orders.end()).size(), orders.size());
    for (const auto& order : orders) expect_order(dag, order);
  }
}

TEST(LinearOrders, OfAChainAreOne) {
  EXPECT_EQ(linear_orders(pipedream_graph("vgg16")).size(), 1U);
}

TEST(Ideals, OfOrdersAreTheirPrefixes) {
  std::mt19937 random(6);
  for (int round = 0; round < 50; ++round) {
    const Dag dag = random_graph(random, 2 + round % 12, 0.2);
    const auto orders = linear_orders(dag);
    const Ideals ideals = ideals_of_orders(dag, orders);
    const std::optional<Ideals> all = enumerate_ideals(dag);
    std::set<std::vector<int>> prefixes{{}};
    for (const auto& order : orders) {
      std::vector<int> prefix;
      for (const int node : order) {
        prefix.insert(std::upper_bound(prefix.begin(), prefix.end(), node), node);
        prefixes.insert(prefix);
      }
    }
    ASSERT_EQ(ideals.count(), prefixes.size());
    for (std::size_t i = 0; i < ideals.count(); ++i) {
      ASSERT_TRUE(prefixes.contains(ideals.difference(0, i)));
      ASSERT_EQ(ideals.cut[i], naive_cut(dag, ideals, i));
    }
    ASSERT_EQ(ideals.complete, dag.chain());
    ASSERT_LE(ideals.count(), all->count());
  }
}

TEST(Ideals, OfLongOrdersAreThinnedToTheSmallestCuts) {
  const Dag dag = pipedream_graph("densenet121");
  const auto orders = linear_orders(dag);
  const Ideals few = ideals_of_orders(dag, orders, 100);

  EXPECT_LE(few.count(), 110U);
  EXPECT_FALSE(few.complete);
  EXPECT_EQ(few.size.front(), 0);
  EXPECT_EQ(few.size.back(), dag.nodes);
}

TEST(Ideals, PickedByIndexKeepTheirValues) {
  const std::optional<Ideals> all = enumerate_ideals(diamond());
  const std::vector<std::size_t> indices{0, 2, 5, 6};
  const Ideals some = ideals_at(*all, indices);

  ASSERT_EQ(some.count(), 4U);
  EXPECT_FALSE(some.complete);
  EXPECT_EQ(some.cut[2], all->cut[5]);
  EXPECT_EQ(*some.set(2), *all->set(5));
  EXPECT_TRUE(some.subset(1, 2));
  EXPECT_FALSE(some.subset(2, 1));
}

TEST(PromisingIdeals, IsWholeWhereTheGraphIsNarrow) {
  const Dag dag = pipedream_graph("resnet50");
  const std::optional<Ideals> all = enumerate_ideals(dag);
  const Ideals family = promising_ideals(dag);
  EXPECT_EQ(family.count(), all->count());
  EXPECT_EQ(family.bits.size(), all->bits.size());
}

TEST(PromisingIdeals, HoldsIdealsOnceAndEndsWithAll) {
  std::mt19937 random(9);
  const Dag dag = random_graph(random, 200, 0.01);
  const Ideals family = promising_ideals(dag, 4000);

  EXPECT_LE(family.count(), 4400U);
  EXPECT_EQ(family.size.back(), dag.nodes);
  std::set<std::vector<std::uint64_t>> seen;
  for (std::size_t i = 0; i < family.count(); ++i) {
    EXPECT_TRUE(seen.insert({family.set(i), family.set(i) + family.words}).second);
    EXPECT_EQ(family.cut[i], naive_cut(dag, family, i));
    for (const int node : family.difference(0, i)) {
      for (const int before : dag.predecessors[static_cast<std::size_t>(node)]) {
        EXPECT_TRUE(family.has(i, before));
      }
    }
  }
}

TEST(SmallestCut, EqualsTheSmallestOverAllIdeals) {
  std::mt19937 random(10);
  for (int round = 0; round < 300; ++round) {
    const Dag dag = random_graph(random, 2 + round % 9, 0.2 + 0.1 * (round % 5));
    const std::optional<Ideals> ideals = enumerate_ideals(dag);
    EXPECT_EQ(smallest_cut(dag), *std::min_element(ideals->cut.begin() + 1, ideals->cut.end() - 1));
  }
}

}  // namespace ideals_test
}  // namespace weir::planner
