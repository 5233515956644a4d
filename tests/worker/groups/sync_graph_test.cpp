// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/sync_graph.h"

#include <gtest/gtest.h>

#include "worker/groups/staleness.h"

namespace weir::groups {
namespace sync_graph_test {

TEST(SyncGraph, CountsComponentsOfTheLiving) {
  SyncGraph graph(4);
  EXPECT_EQ(graph.components(), 4);
  graph.merge(0, 1);
  graph.merge(2, 3);
  EXPECT_EQ(graph.components(), 2);
  EXPECT_EQ(graph.component(0), graph.component(1));
  graph.merge(3, 0);
  EXPECT_TRUE(graph.connected());
  graph.reset();
  EXPECT_EQ(graph.components(), 4);
}

// The component keeps together when the replica after which it is named dies and comes back.
TEST(SyncGraph, TheNameOfAComponentDiesWithItsReplica) {
  SyncGraph graph(3);
  graph.merge(0, 1);
  graph.merge(1, 2);
  graph.remove(0);
  EXPECT_TRUE(graph.connected());
  EXPECT_FALSE(graph.living(0));
  graph.add(0);
  EXPECT_EQ(graph.components(), 2);
  EXPECT_NE(graph.component(0), graph.component(1));
  EXPECT_EQ(graph.component(1), graph.component(2));
  graph.remove(0);
  graph.remove(0);
  graph.reset();
  EXPECT_EQ(graph.components(), 2);
}

TEST(Staleness, OnlyGroupsNearTheSlowestGoOn) {
  EXPECT_EQ(may_go_on({10, 5}, {}, 4), (std::vector{false, true}));
  EXPECT_EQ(may_go_on({10, 5}, {}, 5), (std::vector{true, true}));
  EXPECT_EQ(may_go_on({10, 5}, {0}, 5), (std::vector{false, true}));
  EXPECT_EQ(may_go_on({10}, {20}, 1), (std::vector{true}));
}

TEST(Staleness, MembersTakeTheWeightedMean) {
  EXPECT_DOUBLE_EQ(mixed_progress(std::vector{4.0, 8.0}, std::vector{0.75, 0.25}), 5);
}

}  // namespace sync_graph_test
}  // namespace weir::groups
