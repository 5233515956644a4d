// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/node_rates.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/received_rates.h"

namespace weir::groups {
namespace node_rates_test {

constexpr double kFast = 1e9, kSlow = 2e8;

// Averages of replicas of which some are on slow nodes; the others are fast.
class Nodes {
 public:
  explicit Nodes(int replicas) : rates_(replicas) {}
  std::map<int, double> slow;

  void average(const std::vector<int>& members) {
    ++round_;
    for (const int p : members) rates_.add(p, round_, received(p, members));
  }
  std::vector<ReceivedRate> received(int p, const std::vector<int>& members) const {
    return test::received_rates(p, members,
                                [this](int q) { return slow.contains(q) ? slow.at(q) : kFast; });
  }
  NodeRates& rates() { return rates_; }
  double of(int p) const { return rates_.of(p); }

 private:
  NodeRates rates_;
  std::uint64_t round_ = 0;
};

TEST(NodeRates, NothingIsKnownBeforeAnAverage) {
  const Nodes nodes(3);
  EXPECT_EQ(nodes.of(0), 0);
}

TEST(NodeRates, AnAverageOfThreeShowsWhoIsSlow) {
  Nodes nodes(4);
  nodes.average({0, 1, 2, 3});
  nodes.slow[2] = kSlow;
  nodes.average({1, 2, 3});
  EXPECT_EQ(nodes.of(2), kSlow);
  for (const int p : {0, 1, 3}) EXPECT_EQ(nodes.of(p), kFast) << p;
}

// What one sends is measured by the others, what it receives by itself: either is enough.
TEST(NodeRates, ANodeThatIsSlowInOneDirectionIsSlow) {
  NodeRates sends(3), receives(3);
  sends.add(0, 1, std::vector<ReceivedRate>{{1, kFast}, {2, kFast}});
  sends.add(1, 1, std::vector<ReceivedRate>{{0, kSlow}, {2, kFast}});
  sends.add(2, 1, std::vector<ReceivedRate>{{0, kSlow}, {1, kFast}});
  receives.add(0, 1, std::vector<ReceivedRate>{{1, kSlow}, {2, kSlow}});
  receives.add(1, 1, std::vector<ReceivedRate>{{0, kFast}, {2, kFast}});
  receives.add(2, 1, std::vector<ReceivedRate>{{0, kFast}, {1, kFast}});
  for (const NodeRates& rates : {sends, receives}) {
    EXPECT_EQ(rates.of(0), kSlow);
    EXPECT_EQ(rates.of(1), kFast);
    EXPECT_EQ(rates.of(2), kFast);
  }
}

TEST(NodeRates, InAPairNeitherIsSlowUntilOneWasFastWithAThird) {
  Nodes nodes(4);
  nodes.average({0, 1});
  nodes.average({2, 3});
  nodes.slow[2] = kSlow;
  nodes.average({1, 2});
  EXPECT_EQ(nodes.of(1), kFast);
  EXPECT_EQ(nodes.of(2), kFast);
  nodes.average({0, 1});
  EXPECT_EQ(nodes.of(1), kFast);
  EXPECT_EQ(nodes.of(2), kSlow) << "1 has been fast since";
}

TEST(NodeRates, AReplicaThatMeetsTwoSlowNodesIsNotSlow) {
  Nodes nodes(4);
  nodes.average({0, 3});
  nodes.slow[1] = nodes.slow[2] = kSlow;
  nodes.average({0, 1, 2});
  EXPECT_EQ(nodes.of(0), kFast) << "what it was with 3 before";
  nodes.average({0, 3});
  EXPECT_EQ(nodes.of(1), kSlow);
  EXPECT_EQ(nodes.of(2), kSlow);
}

TEST(NodeRates, TheReportOfOneMemberOfThreeIsEnough) {
  Nodes nodes(3);
  const std::vector<int> all = {0, 1, 2};
  nodes.average(all);
  nodes.slow[2] = kSlow;
  nodes.rates().add(0, 2, nodes.received(0, all));
  EXPECT_EQ(nodes.of(2), kSlow);
  EXPECT_EQ(nodes.of(0), kFast);
  EXPECT_EQ(nodes.of(1), kFast);
}

TEST(NodeRates, ANodeThatRecoversIsFastWithItsNextAverage) {
  Nodes nodes(3);
  nodes.slow[0] = kSlow;
  nodes.average({0, 1, 2});
  nodes.slow.clear();
  nodes.average({0, 2});
  EXPECT_EQ(nodes.of(0), kFast);
}

TEST(NodeRates, TwoReplicasHaveTheRateOfTheirOnlyPair) {
  Nodes nodes(2);
  nodes.slow[0] = kSlow;
  nodes.average({0, 1});
  EXPECT_EQ(nodes.of(0), kSlow);
  EXPECT_EQ(nodes.of(1), kSlow);
}

TEST(NodeRates, AReplicaThatBeginsAgainHasNoRates) {
  Nodes nodes(3);
  nodes.slow[2] = kSlow;
  nodes.average({0, 1, 2});
  nodes.rates().forget(2);
  EXPECT_EQ(nodes.of(2), 0);
  EXPECT_EQ(nodes.of(0), kFast);
}

TEST(NodeRates, ImpossibleRatesAreIgnored) {
  NodeRates rates(2);
  rates.add(0, 1, std::vector<ReceivedRate>{{-1, kFast}, {0, kFast}, {2, kFast}, {1, 0}});
  EXPECT_EQ(rates.of(0), 0);
  EXPECT_EQ(rates.of(1), 0);
}

}  // namespace node_rates_test
}  // namespace weir::groups
