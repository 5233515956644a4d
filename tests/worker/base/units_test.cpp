// SPDX-License-Identifier: Apache-2.0
#include "worker/base/units.h"

#include <limits>

#include <gtest/gtest.h>

namespace weir {
namespace units_test {

using namespace std::chrono_literals;

TEST(Units, SecondsAreRoundedToNanoseconds) {
  EXPECT_EQ(from_seconds(1.5), 1'500'000'000ns);
  EXPECT_EQ(from_seconds(-1e-9), -1ns);
  EXPECT_EQ(from_seconds(0), 0ns);
  EXPECT_DOUBLE_EQ(to_seconds(from_seconds(86400 * 365)), 86400 * 365);
}

TEST(Units, SecondsThatDoNotFitNeverWrap) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto longest = from_seconds(kLongestSeconds);
  for (const double seconds : {1e10, 1e300, kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(from_seconds(seconds), longest) << seconds;
  }
  EXPECT_EQ(from_seconds(-1e10), -longest);
  EXPECT_EQ(from_seconds(-kInfinity), -longest);
  EXPECT_GT(longest + longest, longest);
}

}  // namespace units_test
}  // namespace weir
