// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/neighbors.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::schedule::test {
namespace neighbors_test {

using testing::ElementsAre;
using testing::IsEmpty;

Plan on(const std::vector<std::string>& nodes) {
  Plan plan;
  plan.micro_batches = {4};
  for (int stage = 0; stage < static_cast<int>(nodes.size()); ++stage) {
    plan.stages.push_back({stage, stage});
    plan.ranks.push_back({.node = nodes[static_cast<std::size_t>(stage)], .stage = stage});
  }
  return plan;
}

TEST(Neighbors, AreTheNextStagesOnOtherNodes) {
  EXPECT_THAT(neighbors(on({"a", "b", "c"})).keeper, ElementsAre(1, 2, 0));
  EXPECT_THAT(neighbors(on({"a", "a", "b", "b"})).keeper, ElementsAre(2, 3, 0, 1));
}

TEST(Neighbors, AreCountedNodeByNodeWhereNoDistanceLeavesAllNodes) {
  const Neighbors some = neighbors(on({"a", "b", "a", "a", "b", "c"}));
  EXPECT_EQ(some.on_same_node, 0);
}

TEST(Neighbors, AreTheNextStagesWhereNodesAreUnknown) {
  const Neighbors all = neighbors(on({"", "", ""}));
  EXPECT_THAT(all.keeper, ElementsAre(1, 2, 0));
  EXPECT_EQ(all.on_same_node, 3);
  EXPECT_EQ(all.least_protected, 0);
}

TEST(Neighbors, OfALoneStageAreNone) {
  EXPECT_THAT(neighbors(on({"a"})).keeper, IsEmpty());
}

TEST(Neighbors, AreOnAsFewCommonNodesAsAnyChoice) {
  std::mt19937 random(1);  // NOLINT: the same plans in every run
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::string> nodes(2 + random() % 5);
    for (std::string& node : nodes) node = std::string(1, static_cast<char>('a' + random() % 3));
    const Neighbors found = neighbors(on(nodes));
    std::vector<int> choice(nodes.size());
    std::iota(choice.begin(), choice.end(), 0);
    const auto common = [&](const std::vector<int>& keeper) {
      int count = 0;
      for (std::size_t i = 0; i < keeper.size(); ++i) {
        if (nodes[i] == nodes[static_cast<std::size_t>(keeper[i])]) ++count;
      }
      return count;
    };
    EXPECT_EQ(found.on_same_node, common(found.keeper));
    int least = static_cast<int>(nodes.size());
    do {
      least = std::min(least, common(choice));
    } while (std::ranges::next_permutation(choice).found);
    EXPECT_EQ(found.on_same_node, least) << testing::PrintToString(nodes);
    std::vector<int> each = found.keeper;
    std::ranges::sort(each);
    std::iota(choice.begin(), choice.end(), 0);
    EXPECT_EQ(each, choice) << "each keeps one";
    for (std::size_t i = 0; i < nodes.size(); ++i) EXPECT_NE(found.keeper[i], static_cast<int>(i));
  }
}

}  // namespace neighbors_test
}  // namespace weir::schedule::test
