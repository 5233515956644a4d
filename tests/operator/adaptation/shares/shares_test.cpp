// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/shares/shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::shares {
namespace shares_test {

using testing::ElementsAre;

// The least slowest time over all vectors with the same sum within the limits.
double best_by_trying(const SharesInput& input, std::vector<int>& shares, std::size_t p, int left) {
  const int now = input.shares[p];
  const int change = input.limit_change ? std::max(1, now / 2) : 1000;
  double best = 1e300;
  const int least = std::min(now, std::max({1, input.least_share, now - change}));
  for (int share = least; share <= std::min(left, now + change); ++share) {
    shares[p] = share;
    if (p + 1 < shares.size()) {
      best = std::min(best, best_by_trying(input, shares, p + 1, left - share));
    } else if (share == left) {
      best = std::min(best, slowest_seconds(input, shares));
    }
  }
  return best;
}

TEST(Shares, ASlowerReplicaGetsFewer) {
  EXPECT_THAT(balanced_shares({.seconds = {1, 2}, .shares = {32, 32}, .limit_change = false}),
              ElementsAre(43, 21));
}

// With S stages a step has S-1 slots that no share takes away.
TEST(Shares, CountTheFillOfThePipeline) {
  EXPECT_THAT(
      balanced_shares({.seconds = {1, 2}, .shares = {32, 32}, .stages = 4, .limit_change = false}),
      ElementsAre(44, 20));
}

TEST(Shares, ChangeByHalfAtMost) {
  EXPECT_THAT(balanced_shares({.seconds = {1, 10}, .shares = {32, 32}}), ElementsAre(48, 16));
  EXPECT_THAT(balanced_shares({.seconds = {1, 5}, .shares = {48, 16}}), ElementsAre(56, 8));
}

TEST(Shares, OneMicroBatchMayAlwaysMove) {
  EXPECT_THAT(balanced_shares({.seconds = {1, 10}, .shares = {1, 2}}), ElementsAre(2, 1));
  EXPECT_THAT(balanced_shares({.seconds = {1, 10}, .shares = {1, 1}}), ElementsAre(1, 1));
}

TEST(Shares, NotBelowTheLargestCap) {
  EXPECT_THAT(balanced_shares({.seconds = {1, 4}, .shares = {32, 32}, .least_share = 24}),
              ElementsAre(40, 24));
  // One that lies below already may only grow.
  EXPECT_THAT(balanced_shares({.seconds = {1, 4}, .shares = {44, 20}, .least_share = 24}),
              ElementsAre(44, 20));
}

TEST(Shares, EvenSpeedsStayEven) {
  EXPECT_THAT(balanced_shares({.seconds = {1, 1, 1}, .shares = {8, 8, 8}, .stages = 4}),
              ElementsAre(8, 8, 8));
  // An uneven past is undone, where the limit allows.
  EXPECT_THAT(balanced_shares({.seconds = {1.5, 0.75}, .shares = {12, 6}}), ElementsAre(9, 9));
}

TEST(Shares, AreAsGoodAsTheBestOfAllVectors) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    SharesInput input;
    const std::size_t replicas = 2 + random.below(3);
    input.stages = 1 + static_cast<int>(random.below(5));
    input.least_share = 1 + static_cast<int>(random.below(3));
    input.limit_change = random.uniform() < 0.5;
    for (std::size_t p = 0; p < replicas; ++p) {
      input.shares.push_back(1 + static_cast<int>(random.below(9)));
      input.seconds.push_back(0.2 + 3 * random.uniform());
    }
    const int total = std::accumulate(input.shares.begin(), input.shares.end(), 0);
    const std::vector<int> found = balanced_shares(input);
    EXPECT_EQ(std::accumulate(found.begin(), found.end(), 0), total) << seed;
    for (std::size_t p = 0; p < replicas; ++p) {
      EXPECT_GE(found[p], std::min(input.least_share, input.shares[p])) << seed;
      if (input.limit_change) {
        EXPECT_LE(std::abs(found[p] - input.shares[p]), std::max(1, input.shares[p] / 2)) << seed;
      }
    }
    std::vector<int> shares(replicas);
    EXPECT_NEAR(slowest_seconds(input, found), best_by_trying(input, shares, 0, total), 1e-9)
        << seed;
  }
}

}  // namespace shares_test
}  // namespace weir::shares
