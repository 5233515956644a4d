// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/contraction.h"

#include <vector>

#include <gtest/gtest.h>

namespace weir::groups {
namespace contraction_test {

const std::vector<double> kHalf = {0.5, 0.5};

TEST(Contraction, AnAverageOfAllEndsAllDisagreement) {
  Contraction contraction(4, 1);
  contraction.mix(std::vector{0, 1, 2, 3}, std::vector{0.25, 0.25, 0.25, 0.25});
  EXPECT_NEAR(contraction.end_window(), 0, 1e-12);
  EXPECT_NEAR(contraction.end_window(), 1, 1e-12);  // new vectors, nothing mixed
}

TEST(Contraction, PairsThatStayPairsLeaveSome) {
  Contraction contraction(4, 1);
  for (int i = 0; i < 50; ++i) {
    contraction.mix(std::vector{0, 1}, kHalf);
    contraction.mix(std::vector{2, 3}, kHalf);
  }
  const double left = contraction.end_window();
  EXPECT_GT(left, 0.2);
  EXPECT_LT(left, 1);
}

TEST(Contraction, TheDeadDoNotDisagree) {
  Contraction contraction(3, 1);
  contraction.set_living(2, false);
  static_cast<void>(contraction.end_window());
  contraction.mix(std::vector{0, 1}, kHalf);
  EXPECT_NEAR(contraction.end_window(), 0, 1e-12);
}

}  // namespace contraction_test
}  // namespace weir::groups
