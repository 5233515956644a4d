// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/device_history.h"

#include <gtest/gtest.h>

namespace weir::explain {
namespace device_history_test {

using namespace std::chrono_literals;

struct Told {
  void segment(std::int64_t first_step, int steps, double slowness, std::uint32_t revision = 1) {
    now += 5s;
    remember(history, {{"p/0-3", {slowness, slowness}}}, {revision, first_step, steps}, now);
  }
  double usual() const { return usual_slowness(history, "p/0-3").value_or(Slowness{}).first; }

  DeviceHistory history;
  DeviceHistory::Time now{std::chrono::hours(24 * 365 * 56)};
};

TEST(DeviceHistory, TellsTheTimeOfTheQuickestTenth) {
  Told told;
  EXPECT_EQ(told.usual(), 0) << "never measured";
  told.segment(1, 10, 1.0);
  told.segment(11, 40, 1.5);
  EXPECT_EQ(told.usual(), 1.0) << "slow for most of the steps";
  for (int i = 0; i < 10; ++i) told.segment(51 + 60 * i, 60, 1.5, 2);
  EXPECT_EQ(told.usual(), 1.5) << "this is how it is";
}

TEST(DeviceHistory, ReplacesReportsOfOneSegmentButNotByARisingMean) {
  Told told;
  told.segment(1, 3, 1.2);
  told.segment(1, 20, 1.0);
  EXPECT_EQ(told.usual(), 1.0);
  told.segment(1, 24, 1.05);
  EXPECT_EQ(told.usual(), 1.0) << "its last steps belong to what comes next";
  EXPECT_EQ(told.history.seen.at("p/0-3").size(), 1U);
}

TEST(DeviceHistory, KeepsLayersApartAndForgetsAfterADay) {
  Told told;
  told.segment(1, 20, 1.0);
  EXPECT_FALSE(usual_slowness(told.history, device_key("p", 0, 4)));
  EXPECT_TRUE(usual_slowness(told.history, device_key("p", 0, 3)));
  remember(told.history, {}, {1, 21, 20}, told.now + 25h);
  EXPECT_TRUE(told.history.seen.empty());
}

}  // namespace device_history_test
}  // namespace weir::explain
