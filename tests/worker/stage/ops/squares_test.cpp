// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/squares.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"
#include "worker/base/random.h"

namespace weir::stage::ops {
namespace squares_test {

std::vector<float> random_values(std::size_t count) {
  Random random(count + 1);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(2 * random.uniform() - 1);
  return values;
}

double sum_squares(const std::vector<float>& values) {
  double sum = -1;
  test::run(SumSquares{values.size(), values.data(), &sum});
  return sum;
}

TEST(Squares, AddUpWithTheRoundingOfDoubles) {
  for (const std::size_t count : {0, 1, 255, 256, 257, kSquaresChunk, kSquaresChunk + 1, 70'001}) {
    const std::vector<float> values = random_values(count);
    long double exact = 0;
    for (const float value : values) exact += static_cast<long double>(value) * value;

    const double sum = sum_squares(values);

    EXPECT_NEAR(static_cast<double>(sum - exact), 0, 1e-14 * static_cast<double>(exact)) << count;

    std::vector<double> sums(values.begin(), values.end());
    for (double& one : sums) one *= 1 + 0x1p-30;  // rounds to the value
    double of_sums = -1;
    test::run(SumSquares{count, sums.data(), &of_sums});
    EXPECT_EQ(of_sums, sum) << count << " sums";
  }
}

// The order is part of the contract, because devices must follow it. One large square first; what
// is added to it one by one is lost, what meets before is not.
TEST(Squares, AreAddedUpInLanesThenInATree) {
  constexpr float kLarge = 0x1p27F;  // its square is 2^54: the next double is 4 more
  std::vector<float> values(3 * kSquaresLanes, 0.0F);
  values[0] = kLarge;
  values[kSquaresLanes] = values[2 * kSquaresLanes] = 1;  // in the lane of the large one
  EXPECT_EQ(sum_squares(values), 0x1p54);

  values[kSquaresLanes] = values[2 * kSquaresLanes] = 0;
  values[1] = values[kSquaresLanes + 1] = values[2 * kSquaresLanes + 1] = 1;  // in one other lane
  EXPECT_EQ(sum_squares(values), 0x1p54 + 4);

  std::vector<float> chunks(3 * kSquaresChunk, 0.0F);  // a chunk is a lane of the last sum
  chunks[0] = kLarge;
  chunks[kSquaresChunk] = 1, chunks[kSquaresChunk + kSquaresLanes / 2] = 1;
  chunks[kSquaresChunk + 1] = 1;
  EXPECT_EQ(sum_squares(chunks), 0x1p54 + 4);
}

TEST(Squares, LetBadGradientsBeSeen) {
  std::vector<float> values(1000, 1.0F);
  values[700] = INFINITY;
  EXPECT_EQ(sum_squares(values), INFINITY);
  values[3] = std::nanf("");
  EXPECT_TRUE(std::isnan(sum_squares(values)));
  EXPECT_EQ(sum_squares({1e30F}), static_cast<double>(1e30F) * static_cast<double>(1e30F))
      << "beyond what floats hold";
}

}  // namespace squares_test
}  // namespace weir::stage::ops
