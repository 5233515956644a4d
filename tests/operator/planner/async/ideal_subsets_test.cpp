// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/async/ideal_subsets.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/operator/planner/graph/graphs.h"

namespace weir::planner {
namespace ideal_subsets_test {

TEST(Lanes, CompareLikeSets) {
  std::mt19937 random(8);
  for (int round = 0; round < 60; ++round) {
    const Dag dag = random_graph(random, 2 + round % 10, 0.05 + 0.05 * (round % 8));
    const std::optional<Ideals> ideals = enumerate_ideals(dag);
    const std::vector<int> chains = chains_of(dag, 32);
    ASSERT_EQ(chains.size(), static_cast<std::size_t>(dag.nodes));
    const int blocks = *std::max_element(chains.begin(), chains.end()) / 8 + 1;
    std::vector<Lanes> lanes(ideals->count() * static_cast<std::size_t>(blocks));
    const auto of = [&](std::size_t i) { return &lanes[i * static_cast<std::size_t>(blocks)]; };
    for (std::size_t i = 0; i < ideals->count(); ++i) fill_lanes(*ideals, i, chains, of(i), blocks);
    for (std::size_t i = 0; i < ideals->count(); i += 3) {
      for (std::size_t j = 0; j < ideals->count(); ++j) {
        bool inside = true;
        for (int b = 0; b < blocks; ++b) inside &= !any_above(of(i)[b], of(j)[b]);
        ASSERT_EQ(inside, ideals->subset(i, j));
      }
    }
  }
}

TEST(Lanes, AreNotMadeForVeryWideGraphs) {
  Dag wide;
  wide.nodes = 40;
  EXPECT_TRUE(chains_of(dag_from(std::move(wide), {}), 32).empty());
  EXPECT_EQ(chains_of(pipedream_graph("vgg16"), 1), std::vector<int>(40, 0));
}

}  // namespace ideal_subsets_test
}  // namespace weir::planner
