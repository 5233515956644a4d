// SPDX-License-Identifier: Apache-2.0
// Which node is slow, according to the links of one pipeline, and the rates of other links then.
#include "operator/facts/node_bandwidth.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::facts {
namespace node_bandwidth_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;
using testing::UnorderedElementsAre;

constexpr double kUsual = 1e9;
const Time kNow{std::chrono::hours(24 * 365 * 50)};

// a - b - c - d, both ways; `slow` names those below their usual rate.
std::vector<RememberedLink> line(const std::vector<std::pair<std::string, std::string>>& slow,
                                 double share = 0.1) {
  std::vector<RememberedLink> seen;
  const std::vector<std::string> nodes = {"a", "b", "c", "d"};
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    for (const auto& [from, to] : {std::pair(nodes[i], nodes[i + 1]), {nodes[i + 1], nodes[i]}}) {
      const bool is_slow = std::ranges::find(slow, std::pair(from, to)) != slow.end();
      seen.push_back({from, to, is_slow ? share * kUsual : kUsual, kUsual, kNow});
    }
  }
  return seen;
}

TEST(ProbedLinks, CountBothWaysUnlessBothWereProbed) {
  planner::Cluster cluster;
  add_probed_links(
      {{"a", "b", 1e6, 2e-4}, {"b", "c", 2e7, 0}, {"c", "b", 9e7, 0}, {"c", "d", 0, 0}}, cluster);
  const auto rate = [&](const std::string& from, const std::string& to) {
    return planner::link_between(cluster, from, to).bytes_per_second;
  };
  EXPECT_EQ(rate("a", "b"), 1e6);
  EXPECT_EQ(rate("b", "a"), 1e6);
  EXPECT_EQ(planner::link_between(cluster, "b", "a").latency, std::chrono::microseconds(100));
  EXPECT_EQ(rate("b", "c"), 2e7);
  EXPECT_EQ(rate("c", "b"), 9e7);
  EXPECT_EQ(rate("c", "d"), 2e7) << "it could not be timed: the median of the others";
}

TEST(ProbedLinks, ANodeWhosePortIsSlowIsSlowForThoseThatDidNotProbeIt) {
  planner::Cluster cluster;
  for (const char* node : {"a", "b", "c", "d"}) cluster.devices.push_back({.node = node});
  add_probed_links({{"a", "b", 4e8, 1e-4},
                    {"b", "a", 4e8, 1e-4},
                    {"b", "c", 5e6, 1e-4},  // what c receives
                    {"c", "b", 3e8, 1e-4},
                    {"c", "d", 4e8, 3e-4},
                    {"d", "c", 5e6, 3e-4}},
                   cluster);
  const auto link = [&](const std::string& from, const std::string& to) {
    return planner::link_between(cluster, from, to);
  };
  EXPECT_EQ(link("a", "c").bytes_per_second, 5e6);
  EXPECT_EQ(link("c", "a").bytes_per_second, 4e8);
  EXPECT_EQ(link("a", "d").bytes_per_second, 4e8);
  EXPECT_EQ(link("a", "d").latency, std::chrono::microseconds(50)) << "the median";
}

TEST(ProbedLinks, OfEqualLinksScatterAndCountAsEqual) {
  planner::Cluster cluster;
  add_probed_links({{"a", "b", 5e8, 1e-4}, {"b", "c", 3e8, 1e-4}, {"c", "d", 2e8, 1e-4}}, cluster);
  for (const auto& link : cluster.links) EXPECT_EQ(link.bytes_per_second, 3e8);
}

TEST(ProbedLinks, WithoutOneNothingChanges) {
  planner::Cluster cluster;
  add_probed_links({{"a", "b", 0, 0}}, cluster);
  EXPECT_EQ(cluster.default_bytes_per_second, planner::Cluster().default_bytes_per_second);
  EXPECT_TRUE(cluster.links.empty());
}

TEST(SlowNodes, AreNoneOnAFreeNetwork) {
  EXPECT_THAT(slow_nodes(line({})), IsEmpty());
}

TEST(SlowNodes, ANodeInTheMiddleExplainsAllItsLinksAndItsNeighboursNone) {
  const auto slow = slow_nodes(line({{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "b"}}));
  ASSERT_THAT(slow, ElementsAre(Key("b")));
  EXPECT_DOUBLE_EQ(slow.at("b").out, 0.1);
  EXPECT_DOUBLE_EQ(slow.at("b").in, 0.1);
}

TEST(SlowNodes, ANodeAtTheEndIsNamedBecauseItsNeighbourSendsFastElsewhere) {
  EXPECT_THAT(slow_nodes(line({{"a", "b"}, {"b", "a"}})), ElementsAre(Key("a")));
  EXPECT_THAT(slow_nodes(line({{"c", "d"}, {"d", "c"}})), ElementsAre(Key("d")));
}

TEST(SlowNodes, OnlyTheSlowDirectionCounts) {
  const auto slow = slow_nodes(line({{"b", "a"}, {"b", "c"}}));
  ASSERT_THAT(slow, ElementsAre(Key("b")));
  EXPECT_DOUBLE_EQ(slow.at("b").out, 0.1);
  EXPECT_DOUBLE_EQ(slow.at("b").in, 1);
}

TEST(SlowNodes, ASlowPathBetweenTwoFastNodesMakesNeitherSlow) {
  EXPECT_THAT(slow_nodes(line({{"b", "c"}, {"c", "b"}})), IsEmpty());
}

// As seen on a busy machine, where no link reaches its usual rate: d receives slowly, c is blamed
// for more links, but what c sends to b goes twenty times faster.
TEST(SlowNodes, ANodeDoesNotExplainALinkThatIsMuchSlowerThanItsOthers) {
  const auto slow = slow_nodes({{"c", "d", 6e5, 2e8, kNow},
                                {"c", "b", 1.2e7, 2.9e8, kNow},
                                {"d", "c", 8e7, 2.75e8, kNow},
                                {"b", "c", 3.1e8, 4.1e8, kNow}});
  ASSERT_TRUE(slow.contains("d"));
  EXPECT_DOUBLE_EQ(slow.at("d").in, 0.003);
  EXPECT_GE(slow.at("c").out, 0.04) << "no worse than its link to b";
}

TEST(SlowNodes, TwoNodesThatExplainTheSameAreBothNamed) {
  std::vector<RememberedLink> pair = {{"a", "b", 1e8, kUsual, kNow}, {"b", "a", 1e8, kUsual, kNow}};
  EXPECT_THAT(slow_nodes(pair), UnorderedElementsAre(Key("a"), Key("b")));
}

TEST(InferredLinks, OfASlowNodeAreSlowAndOthersStay) {
  planner::Cluster cluster;
  for (const char* node : {"a", "b", "c", "d"}) cluster.devices.push_back({.node = node});
  cluster.links = {{.from_node = "a", .to_node = "c", .bytes_per_second = 8e8}};
  add_inferred_links(line({{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "b"}}), cluster);
  const auto rate = [&](const char* from, const char* to) {
    return planner::link_between(cluster, from, to).bytes_per_second;
  };
  EXPECT_DOUBLE_EQ(rate("a", "b"), 0.1 * kUsual);  // measured
  EXPECT_DOUBLE_EQ(rate("b", "d"), 0.1 * kUsual);  // follows
  EXPECT_DOUBLE_EQ(rate("d", "b"), 0.1 * kUsual);
  EXPECT_DOUBLE_EQ(rate("a", "c"), 8e8);  // the probe
  EXPECT_DOUBLE_EQ(rate("a", "d"), cluster.default_bytes_per_second);
}

TEST(RememberedLinks, ANewerOneReplacesAnOlderAndAllAreForgottenAfterAnHour) {
  std::vector<RememberedLink> seen = line({{"a", "b"}});
  const Time later = kNow + std::chrono::minutes(30);
  remember_links(seen, {{"a", "b", 5e8, kUsual, later}}, later);
  ASSERT_EQ(seen.size(), 6U);
  EXPECT_DOUBLE_EQ(seen.back().rate, 5e8);
  remember_links(seen, {}, kNow + std::chrono::minutes(61));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen.front().time, later);
}

// Two pipelines a - b and c - d whose stages sum with each other: a with c, b with d.
std::vector<RememberedLink> ladder(const std::set<std::pair<std::string, std::string>>& slow) {
  std::vector<RememberedLink> seen;
  for (const auto& [one, other] :
       {std::pair("a", "b"), std::pair("c", "d"), std::pair("a", "c"), std::pair("b", "d")}) {
    for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
      seen.push_back({from, to, slow.contains({from, to}) ? 0.1 * kUsual : kUsual, kUsual, kNow});
    }
  }
  return seen;
}
std::set<std::pair<std::string, std::string>> across() {
  return {{"a", "c"}, {"c", "a"}, {"b", "d"}, {"d", "b"}};
}

TEST(LimitsBetweenGroups, LieBetweenGroupsThatAreFastAmongThemselves) {
  const auto limits = limits_between_groups(ladder(across()));
  EXPECT_EQ(limits.size(), 8U);
  EXPECT_EQ(limits.at({"a", "d"}), 0.1 * kUsual);
  EXPECT_EQ(limits.at({"d", "a"}), 0.1 * kUsual);
  EXPECT_FALSE(limits.contains({"a", "b"}));
  EXPECT_THAT(slow_nodes(ladder(across())), IsEmpty()) << "each node has a fast link, too";

  planner::Cluster cluster;
  for (const char* node : {"a", "b", "c", "d"}) {
    cluster.devices.emplace_back();
    cluster.devices.back().node = node;
  }
  add_inferred_links(ladder(across()), cluster);
  const auto rate = [&](const char* from, const char* to) {
    return planner::link_between(cluster, from, to).bytes_per_second;
  };
  EXPECT_EQ(rate("a", "d"), 0.1 * kUsual) << "nobody has measured it";
  EXPECT_EQ(rate("c", "b"), 0.1 * kUsual);
  EXPECT_EQ(rate("a", "b"), kUsual);
}

TEST(LimitsBetweenGroups, AreNoneWhereOneLinkBetweenTheGroupsIsFastOrOnlyOneIsKnown) {
  EXPECT_THAT(limits_between_groups(ladder({})), IsEmpty());
  EXPECT_THAT(limits_between_groups(ladder({{"a", "c"}, {"c", "a"}})), IsEmpty())
      << "b sees d at full rate";
  EXPECT_THAT(limits_between_groups(line({{"b", "c"}, {"c", "b"}})), IsEmpty())
      << "one link says little";
  const auto one_node =
      limits_between_groups(ladder({{"a", "c"}, {"c", "a"}, {"a", "b"}, {"b", "a"}}));
  EXPECT_THAT(one_node, IsEmpty()) << "all slow links share node a: it is slow itself";
}

TEST(LimitsBetweenGroups, AreToldByWhatIsMeasuredNow) {
  auto seen = ladder(across());
  for (auto& link : seen) {
    if (link.from == "b" || link.to == "b") link.time -= std::chrono::minutes(1);
  }
  EXPECT_THAT(limits_between_groups(seen), IsEmpty()) << "a and c, c and d: one slow link";
}

TEST(LimitsBetweenGroups, MayBeSlowOneWayOnly) {
  const auto limits = limits_between_groups(ladder({{"a", "c"}, {"b", "d"}}));
  EXPECT_EQ(limits.size(), 4U);
  EXPECT_TRUE(limits.contains({"a", "d"}));
  EXPECT_FALSE(limits.contains({"d", "a"}));
}

}  // namespace node_bandwidth_test
}  // namespace weir::facts
