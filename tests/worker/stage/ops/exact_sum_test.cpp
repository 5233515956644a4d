// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"
#include "worker/base/random.h"

namespace weir::stage::ops {
namespace exact_sum_test {

// Gradients of very unequal size: 2^-40 .. 2^6, both signs.
std::vector<std::vector<float>> terms(int count, std::size_t width) {
  Random random(11);
  std::vector<std::vector<float>> result(static_cast<std::size_t>(count));
  for (auto& term : result) {
    for (std::size_t i = 0; i < width; ++i) {
      const double exponent = -40 + 46 * random.uniform();
      term.push_back(static_cast<float>((2 * random.uniform() - 1) * std::exp2(exponent)));
    }
  }
  return result;
}

std::vector<double> sum(const std::vector<std::vector<float>>& all, std::vector<std::size_t> order,
                        std::size_t width) {
  std::vector<double> sums(width, 0.0);
  for (const std::size_t i : order) {
    test::run(AddExactly{width, all[i].data(), sums.data()});
  }
  return sums;
}

TEST(ExactSum, HasOneResultForEveryOrderAndEveryGrouping) {
  constexpr std::size_t kWidth = 257;
  const auto all = terms(32, kWidth);
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  const auto expected = sum(all, order, kWidth);

  Random random(5);
  for (int trial = 0; trial < 20; ++trial) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    EXPECT_EQ(sum(all, order, kWidth), expected);

    const auto cut = static_cast<std::ptrdiff_t>(1 + random.below(order.size() - 1));
    const auto first = sum(all, {order.begin(), order.begin() + cut}, kWidth);
    auto both = sum(all, {order.begin() + cut, order.end()}, kWidth);
    for (std::size_t i = 0; i < kWidth; ++i) both[i] += first[i];
    EXPECT_EQ(both, expected);
  }
}

TEST(ExactSum, OfPlainFloatsWouldDependOnTheOrder) {  // the test above must be able to fail
  const auto all = terms(32, 64);
  std::vector<float> forward(64, 0.0F), backward(64, 0.0F);
  for (std::size_t m = 0; m < all.size(); ++m) {
    for (std::size_t i = 0; i < 64; ++i) {
      forward[i] += all[m][i];
      backward[i] += all[all.size() - 1 - m][i];
    }
  }
  EXPECT_NE(forward, backward);
}

TEST(ExactSum, IsOffByHalfAQuantumATermAtMost) {
  const auto all = terms(32, 100);
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  const auto sums = sum(all, order, 100);
  for (std::size_t i = 0; i < 100; ++i) {
    long double exact = 0;
    for (const auto& term : all) exact += static_cast<long double>(term[i]);
    EXPECT_NEAR(static_cast<double>(sums[i] - exact), 0, 32 * std::exp2(-45));
  }
}

TEST(ExactSum, RoundsOnce) {
  const std::vector<float> term = {0.1F, -3.0F, 0.0F};
  std::vector<double> sums = {0, 0, 0};
  test::run(AddExactly{3, term.data(), sums.data()});
  std::vector<float> rounded(3);
  test::run(RoundSums{3, sums.data(), rounded.data()});
  EXPECT_EQ(rounded, (std::vector<float>{0.1F, -3.0F, 0.0F}));
}

TEST(ExactSum, OfATableThatTwoLayersShareIsThatOfBoth) {
  std::vector<double> first = {1, -2, 0.5}, last = {0.25, 2, 1e-9};
  test::run(JoinSums{3, first.data(), last.data()});
  EXPECT_EQ(first, (std::vector<double>{1.25, 0, 0.5 + 1e-9}));
  EXPECT_EQ(last, first);
}

TEST(ExactSum, LetsBadGradientsBeSeen) {
  const std::vector<float> term = {std::nanf(""), INFINITY, 1e20F};
  std::vector<double> sums = {0, 0, 0};
  test::run(AddExactly{3, term.data(), sums.data()});
  std::vector<float> rounded(3);
  test::run(RoundSums{3, sums.data(), rounded.data()});
  EXPECT_TRUE(std::isnan(rounded[0]));
  EXPECT_TRUE(std::isinf(rounded[1]));
  EXPECT_EQ(rounded[2], 1e20F);
}

}  // namespace exact_sum_test
}  // namespace weir::stage::ops
