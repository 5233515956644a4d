// SPDX-License-Identifier: Apache-2.0
#include "worker/data/permutation.h"

#include <vector>

#include <gtest/gtest.h>

namespace weir::data {
namespace permutation_test {

TEST(Permutation, ReachesEachElementOnce) {
  for (const std::uint64_t size : {1U, 2U, 3U, 4U, 5U, 17U, 256U, 1000U}) {
    const Permutation permutation(size, 7);
    std::vector<int> seen(size, 0);
    for (std::uint64_t i = 0; i < size; ++i) ++seen.at(permutation(i));
    EXPECT_EQ(seen, std::vector<int>(size, 1)) << size;
  }
}

TEST(Permutation, DependsOnItsKey) {
  const Permutation first(1000, 1);
  const Permutation second(1000, 2);
  int equal = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) equal += first(i) == second(i) ? 1 : 0;

  EXPECT_LT(equal, 20);  // 1 is expected of two random permutations
}

TEST(Permutation, LeavesFewNeighboursTogether) {
  const Permutation permutation(1000, 3);
  int together = 0;
  for (std::uint64_t i = 1; i < 1000; ++i) {
    together += permutation(i) == permutation(i - 1) + 1 ? 1 : 0;
  }

  EXPECT_LT(together, 20);
}

TEST(Permutation, WorksBeyondWhatATableCouldHold) {
  const std::uint64_t size = (std::uint64_t{1} << 61) + 1;

  EXPECT_LT(Permutation(size, 1)(size - 1), size);
}

}  // namespace permutation_test
}  // namespace weir::data
