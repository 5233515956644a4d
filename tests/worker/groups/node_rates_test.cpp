// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/node_rates.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/received_rates.h"

namespace weir::groups {
namespace port_rates_test {

constexpr double kFast = 1e9, kSlow = 2e8;

// Averages of replicas of which some have slow ports; what is not named is fast.
class Ports {
 public:
  explicit Ports(int replicas) : rates_(replicas) {}
  std::map<int, double> slow;

  void average(const std::vector<int>& members) {
    ++round_;
    for (const int p : members) rates_.add(p, round_, received(p, members));
  }
  std::vector<ReceivedRate> received(int p, const std::vector<int>& members) const {
    return test::received_rates(p, members,
                                [this](int q) { return slow.contains(q) ? slow.at(q) : kFast; });
  }
  PortRates& rates() { return rates_; }
  double of(int p) const { return rates_.of(p); }

 private:
  PortRates rates_;
  std::uint64_t round_ = 0;
};

TEST(PortRates, NothingIsKnownBeforeAnAverage) {
  const Ports ports(3);
  EXPECT_EQ(ports.of(0), 0);
}

TEST(PortRates, AnAverageOfThreeShowsWhoIsSlow) {
  Ports ports(4);
  ports.average({0, 1, 2, 3});
  ports.slow[2] = kSlow;
  ports.average({1, 2, 3});
  EXPECT_EQ(ports.of(2), kSlow);
  for (const int p : {0, 1, 3}) EXPECT_EQ(ports.of(p), kFast) << p;
}

// What one sends is measured by the others, what it receives by itself: either is enough.
TEST(PortRates, APortThatIsSlowInOneDirectionIsSlow) {
  PortRates sends(3), receives(3);
  sends.add(0, 1, std::vector<ReceivedRate>{{1, kFast}, {2, kFast}});
  sends.add(1, 1, std::vector<ReceivedRate>{{0, kSlow}, {2, kFast}});
  sends.add(2, 1, std::vector<ReceivedRate>{{0, kSlow}, {1, kFast}});
  receives.add(0, 1, std::vector<ReceivedRate>{{1, kSlow}, {2, kSlow}});
  receives.add(1, 1, std::vector<ReceivedRate>{{0, kFast}, {2, kFast}});
  receives.add(2, 1, std::vector<ReceivedRate>{{0, kFast}, {1, kFast}});
  for (const PortRates& rates : {sends, receives}) {
    EXPECT_EQ(rates.of(0), kSlow);
    EXPECT_EQ(rates.of(1), kFast);
    EXPECT_EQ(rates.of(2), kFast);
  }
}

TEST(PortRates, OfAPairNobodyIsBlamedUntilOneWasFastWithAnother) {
  Ports ports(4);
  ports.average({0, 1});
  ports.average({2, 3});
  ports.slow[2] = kSlow;
  ports.average({1, 2});
  EXPECT_EQ(ports.of(1), kFast);
  EXPECT_EQ(ports.of(2), kFast);
  ports.average({0, 1});
  EXPECT_EQ(ports.of(1), kFast);
  EXPECT_EQ(ports.of(2), kSlow) << "1 has been fast since";
}

TEST(PortRates, WhoMeetsTwoSlowPortsIsNotSlow) {
  Ports ports(4);
  ports.average({0, 3});
  ports.slow[1] = ports.slow[2] = kSlow;
  ports.average({0, 1, 2});
  EXPECT_EQ(ports.of(0), kFast) << "what it was with 3 before";
  ports.average({0, 3});
  EXPECT_EQ(ports.of(1), kSlow);
  EXPECT_EQ(ports.of(2), kSlow);
}

TEST(PortRates, TheReportOfOneMemberOfThreeIsEnough) {
  Ports ports(3);
  const std::vector<int> all = {0, 1, 2};
  ports.average(all);
  ports.slow[2] = kSlow;
  ports.rates().add(0, 2, ports.received(0, all));
  EXPECT_EQ(ports.of(2), kSlow);
  EXPECT_EQ(ports.of(0), kFast);
  EXPECT_EQ(ports.of(1), kFast);
}

TEST(PortRates, APortThatRecoversIsFastWithItsNextAverage) {
  Ports ports(3);
  ports.slow[0] = kSlow;
  ports.average({0, 1, 2});
  ports.slow.clear();
  ports.average({0, 2});
  EXPECT_EQ(ports.of(0), kFast);
}

TEST(PortRates, OfTwoReplicasTheOnlyPairCounts) {
  Ports ports(2);
  ports.slow[0] = kSlow;
  ports.average({0, 1});
  EXPECT_EQ(ports.of(0), kSlow);
  EXPECT_EQ(ports.of(1), kSlow);
}

TEST(PortRates, WhoBeginsAgainHasNoPast) {
  Ports ports(3);
  ports.slow[2] = kSlow;
  ports.average({0, 1, 2});
  ports.rates().forget(2);
  EXPECT_EQ(ports.of(2), 0);
  EXPECT_EQ(ports.of(0), kFast);
}

TEST(PortRates, WhatCannotBeIsIgnored) {
  PortRates rates(2);
  rates.add(0, 1, std::vector<ReceivedRate>{{-1, kFast}, {0, kFast}, {2, kFast}, {1, 0}});
  EXPECT_EQ(rates.of(0), 0);
  EXPECT_EQ(rates.of(1), 0);
}

}  // namespace port_rates_test
}  // namespace weir::groups
