// SPDX-License-Identifier: Apache-2.0
#include "operator/placement/assign.h"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>

namespace weir::placement {
namespace assign_test {

using namespace std::chrono_literals;
using planner::Cluster;
using planner::Device;
using testing::ElementsAre;

Cluster servers(const std::vector<int>& devices) {
  Cluster cluster;
  cluster.default_latency = 0ns;
  cluster.default_bytes_per_second = 1e9;
  for (std::size_t s = 0; s < devices.size(); ++s) {
    for (int d = 0; d < devices[s]; ++d) {
      Device device;
      device.node = "n" + std::to_string(s);
      device.pod = device.node + "-" + std::to_string(d);
      cluster.devices.push_back(device);
    }
  }
  return cluster;
}

void set_link(Cluster& cluster, int a, int b, double rate) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    cluster.links.push_back({"n" + std::to_string(from), "n" + std::to_string(to), rate, 0ns});
  }
}

Task one_each(std::size_t devices, int stages, int ranks = 1, int replicas = 1) {
  Task task;
  task.kind_of.assign(devices, 0);
  task.kinds.assign(static_cast<std::size_t>(stages), 0);
  task.ranks.assign(static_cast<std::size_t>(stages), ranks);
  task.replicas = replicas;
  return task;
}

// Sum of the seconds of all transfers of a GB between neighbours.
Score transfers(const Topology& topology) {
  return [&topology](const Assignment& assignment) {
    double sum = 0;
    for (const auto& replica : assignment) {
      for (std::size_t s = 0; s + 1 < replica.size(); ++s) {
        sum += send_between(topology, replica[s], replica[s + 1], 1'000'000'000).seconds;
      }
    }
    return sum;
  };
}

TEST(Assign, FindsTheOnlyPathOfFastLinks) {
  Cluster cluster = servers({1, 1, 1, 1, 1});
  for (const auto& [a, b] : {std::pair(3, 0), {0, 4}, {4, 1}, {1, 2}}) set_link(cluster, a, b, 8e9);
  const Topology topology(cluster);

  const auto assigned = assign(topology, one_each(5, 5), transfers(topology));

  ASSERT_TRUE(assigned);
  EXPECT_TRUE(assigned->exact);
  EXPECT_DOUBLE_EQ(assigned->seconds, 4 / 8.0);
  EXPECT_LE(assigned->tried, 120);
}

TEST(Assign, TriesEqualServersOnce) {
  const Topology topology(servers(std::vector<int>(16, 1)));
  const auto assigned = assign(topology, one_each(16, 16), transfers(topology));
  ASSERT_TRUE(assigned);
  EXPECT_TRUE(assigned->exact);
  EXPECT_EQ(assigned->tried, 1);
}

TEST(Assign, IsAsGoodAsEveryPermutationInSmallCases) {
  std::uint64_t state = 7;
  const auto random = [&](std::uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % below;
  };
  for (int round = 0; round < 60; ++round) {
    Cluster cluster = servers({1, 2, 1, 2});
    for (int a = 0; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b) {
        if (random(2) == 0) set_link(cluster, a, b, 1e8 * static_cast<double>(1 + random(50)));
      }
    }
    const Topology topology(cluster);
    const int stages = 2 + static_cast<int>(random(4));
    const Score score = transfers(topology);
    std::vector<int> devices{0, 1, 2, 3, 4, 5};
    double best = std::numeric_limits<double>::infinity();
    do {
      Assignment all(1);
      for (int s = 0; s < stages; ++s) all[0].push_back({devices[static_cast<std::size_t>(s)]});
      best = std::min(best, score(all));
    } while (std::next_permutation(devices.begin(), devices.end()));

    const auto assigned = assign(topology, one_each(6, stages), score);

    ASSERT_TRUE(assigned);
    EXPECT_TRUE(assigned->exact);
    EXPECT_NEAR(assigned->seconds, best, best * 1e-12) << round;
  }
}

TEST(Assign, ImprovesConstructionsWhereItCannotTryAll) {
  Cluster cluster = servers(std::vector<int>(20, 1));
  for (int s = 0; s < 20; ++s) set_link(cluster, s, (s + 7) % 20, 5e9);
  const Topology topology(cluster);
  Task task = one_each(20, 10);
  task.most_tried = 3000;

  const auto assigned = assign(topology, task, transfers(topology));

  ASSERT_TRUE(assigned);
  EXPECT_FALSE(assigned->exact);
  EXPECT_LT(assigned->seconds, 9 * 0.5) << "9 s when no fast link is used";
}

TEST(Assign, TakesTheMapThatMovesLessWithinHalfAPercent) {
  Cluster cluster = servers({1, 1, 1});
  set_link(cluster, 0, 1, 1.003e9);
  const Topology topology(cluster);
  const Score score = transfers(topology);
  const MovedBytes moved = [](const Assignment& assignment) -> std::int64_t {
    return assignment[0][0][0] == 2 && assignment[0][1][0] == 0 ? 0 : 1000;
  };

  const auto assigned = assign(topology, one_each(3, 2), score, moved);

  ASSERT_TRUE(assigned);
  EXPECT_EQ(assigned->assignment[0][0][0], 2);
  EXPECT_EQ(assigned->assignment[0][1][0], 0);
  EXPECT_NE(assign(topology, one_each(3, 2), score)->assignment[0][0][0], 2);
}

TEST(Assign, SaysNothingWhenDevicesAreMissing) {
  const Topology topology(servers({1, 1}));
  EXPECT_FALSE(assign(topology, one_each(2, 3), transfers(topology)));
  Task task = one_each(2, 2);
  task.kinds = {0, 1};
  EXPECT_FALSE(assign(topology, task, transfers(topology)));
}

TEST(Constructions, FollowTheirPolicies) {
  const Topology topology(servers({2, 2, 2}));
  const Task task = one_each(6, 3, 2);
  const auto servers_of = [&](Policy policy) {
    std::vector<int> result;
    const auto built = constructed(topology, task, policy, false);
    for (const auto& stage : built->front()) {
      for (const int d : stage) result.push_back(topology.server_of(d));
    }
    return result;
  };
  EXPECT_THAT(servers_of(Policy::kFreshFirst), ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(servers_of(Policy::kScatterFirst), ElementsAre(0, 1, 2, 0, 1, 2));
  const Task small = one_each(6, 3);
  std::vector<int> appended;
  const auto built = constructed(topology, small, Policy::kAppendFirst, false);
  for (const auto& stage : built->front()) {
    appended.push_back(topology.server_of(stage[0]));
  }
  EXPECT_THAT(appended, ElementsAre(0, 0, 1));
}

TEST(Constructions, ByStageKeepsReplicasOfAStageTogether) {
  const Topology topology(servers({2, 2}));
  const auto built = constructed(topology, one_each(4, 2, 1, 2), Policy::kFreshFirst, true);
  ASSERT_TRUE(built);
  EXPECT_EQ(topology.server_of((*built)[0][0][0]), topology.server_of((*built)[1][0][0]));
  EXPECT_NE(topology.server_of((*built)[0][0][0]), topology.server_of((*built)[0][1][0]));
}

TEST(Score, SplitsAMicroBatchOverTheFewerRanks) {
  const Topology topology(servers({1, 1, 1, 1}));
  EXPECT_DOUBLE_EQ(send_between(topology, {0}, {1}, 1'000'000'000).seconds, 1.0);
  EXPECT_DOUBLE_EQ(send_between(topology, {0, 1}, {2, 3}, 1'000'000'000).seconds, 0.5);
  EXPECT_DOUBLE_EQ(send_between(topology, {0}, {1, 2, 3}, 1'000'000'000).seconds, 1.0);
}

TEST(Score, RingsGoAtTheSlowestHop) {
  Cluster cluster = servers({1, 1, 1});
  set_link(cluster, 1, 2, 2.5e8);
  const Topology topology(cluster);
  const Assignment assignment{{{0, 1, 2}}};
  EXPECT_DOUBLE_EQ(ring_seconds(topology, assignment, 0, 750'000'000), 4.0 / 3 * 0.75 / 0.25);
  EXPECT_EQ(ring_seconds(topology, {{{0}}}, 0, 1000), 0) << "one rank has nobody to ask";
}

}  // namespace assign_test
}  // namespace weir::placement
