// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/shares/share_cost.h"

#include <gtest/gtest.h>

namespace weir::shares {
namespace share_cost_test {

// 8 micro-batches a replica over 1 stage: times follow the shares.
estimator::ReplicaInterval interval(int second, std::int64_t steps, double first, double other) {
  estimator::ReplicaInterval one;
  one.end = estimator::SystemTime(std::chrono::seconds(second));
  one.replicas[0] = {.steps = steps, .seconds = first, .smoothed = first};
  one.replicas[1] = {.steps = steps, .seconds = other, .smoothed = other};
  return one;
}

TEST(ShareCost, CountsWhatUnevenSharesCostOnceEach) {
  ShareCost share_cost;
  // Both are equally fast: 12 micro-batches take 1.5 x what 8 take.
  std::vector<estimator::ReplicaInterval> measured{interval(1, 4, 0.5, 1.5)};
  add_intervals(share_cost, measured, {4, 12}, 1);
  EXPECT_NEAR(share_cost.current_shares, 4 * 0.5, 1e-9);
  EXPECT_NEAR(share_cost.all_shares, 4 * 0.5 - 4 * kLapse, 1e-9);
  add_intervals(share_cost, measured, {4, 12}, 1);
  EXPECT_NEAR(share_cost.current_shares, 2, 1e-9);
  measured.push_back(interval(2, 2, 0.5, 1.5));
  add_intervals(share_cost, measured, {4, 12}, 1);
  EXPECT_NEAR(share_cost.current_shares, 3, 1e-9);
}

TEST(ShareCost, GainsMakeGoodWhatWasLostAndNoMore) {
  ShareCost share_cost;
  // Replica 0 is three times as slow: 4 and 12 end together, even ones would take twice as long.
  add_intervals(share_cost, std::vector{interval(1, 10, 1.5, 1.5)}, {4, 12}, 1);
  EXPECT_EQ(share_cost.all_shares, 0);
  add_intervals(share_cost, std::vector{interval(2, 10, 0.5, 1.5)}, {4, 12}, 1);
  const double lost = share_cost.all_shares;
  EXPECT_NEAR(lost, 5, 0.1);
  add_intervals(share_cost, std::vector{interval(3, 4, 1.5, 1.5)}, {4, 12}, 1);
  EXPECT_NEAR(share_cost.all_shares, lost - 2, 0.1);
}

TEST(ShareCost, EvenSharesCostNothingAndOldLossesLapse) {
  ShareCost share_cost{.all_shares = 3, .current_shares = 0, .counted = {}};
  add_intervals(share_cost, std::vector{interval(1, 200, 3, 1)}, {8, 8}, 1);
  EXPECT_NEAR(share_cost.all_shares, 3 - 200 * kLapse, 1e-9);
  EXPECT_EQ(share_cost.current_shares, 0);
}

}  // namespace share_cost_test
}  // namespace weir::shares
