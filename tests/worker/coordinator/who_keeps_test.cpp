// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/who_keeps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::coordinator::test {
namespace who_keeps_test {

using testing::Each;
using testing::ElementsAre;

const std::vector<int> kNext{1, 2, 3, 0};
const std::vector<std::string> kApart{"a", "b", "c", "d"};

TEST(Keepers, AreTheUsualOnesIfTheyStay) {
  EXPECT_EQ(keepers_that_stay(kNext, kApart, {}, {}), kNext);
  EXPECT_THAT(keepers_that_stay(kNext, kApart, {1}, {}), ElementsAre(2, 2, 3, 0))
      << "the copy of 0 goes to one that keeps one";
}

TEST(Keepers, ThatLeaveTogetherWithTheirRankAreReplaced) {
  EXPECT_THAT(keepers_that_stay(kNext, kApart, {1, 2}, {}), ElementsAre(3, 3, 3, 0));
  EXPECT_THAT(keepers_that_stay(kNext, kApart, {1, 2, 3}, {}), ElementsAre(-1, 0, 0, 0))
      << "nobody keeps its own";
}

TEST(Keepers, LieOnAnotherNodeIfTheyCan) {
  EXPECT_EQ(keepers_that_stay(kNext, {"a", "b", "b", "a"}, {0, 1}, {})[0], 2);
}

TEST(Keepers, ThatHaveFailedKeepNothing) {
  EXPECT_THAT(keepers_that_stay(kNext, kApart, {1, 2}, {3}), ElementsAre(-1, 0, 0, 0));
  EXPECT_THAT(keepers_that_stay(kNext, kApart, {1, 2}, {0, 3}), Each(-1));
}

TEST(Keepers, AreFoundWhereThereWasNone) {
  EXPECT_THAT(keepers_that_stay({-1, -1, 3, 0}, kApart, {1}, {}), ElementsAre(2, 2, 3, 0));
}

TEST(Keepers, HaveFourCopiesAtMost) {
  const std::vector<int> next{1, 2, 3, 4, 5, 0};
  EXPECT_THAT(keepers_that_stay(next, {"a", "b", "c", "d", "e", "f"}, {1, 2, 3, 4, 5}, {}),
              ElementsAre(-1, 0, 0, 0, -1, 0));
}

}  // namespace who_keeps_test
}  // namespace weir::coordinator::test
