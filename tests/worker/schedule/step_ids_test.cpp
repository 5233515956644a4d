// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/step_ids.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace weir::schedule {
namespace step_ids_test {

using Shares = std::vector<int>;
using All = std::vector<Ids>;

TEST(StepIds, OfSharesFollowEachOther) {
  EXPECT_EQ(ids_to_compute({2, 3, 1}, {}), (All{{{0, 2}}, {{2, 3}}, {{5, 1}}}));
  EXPECT_EQ(ids_to_compute({4}, {}), (All{{{0, 4}}}));
}

TEST(StepIds, ThatNobodyHasAreCutByTheShares) {
  EXPECT_EQ(ids_to_compute({3, 3}, {{{0, 2}}, {{2, 2}}}), (All{{{4, 1}}, {{5, 1}}}));
  EXPECT_EQ(ids_to_compute({3, 3}, {{{0, 2}}, {{2, 3}}}), (All{{{5, 1}}, {}})) << "one is left";
  EXPECT_EQ(ids_to_compute({3, 3}, {{{1, 1}}, {}}), (All{{{0, 1}, {2, 2}}, {{4, 2}}}));
  EXPECT_EQ(ids_to_compute({2, 1}, {{{0, 2}}, {{2, 1}}}), (All{{}, {}})) << "all are there";
}

TEST(StepIds, AreComputedOnceWhateverIsKept) {
  std::mt19937 random(7);  // NOLINT: the same cases in every run
  for (int trial = 0; trial < 2000; ++trial) {
    Shares shares;
    for (unsigned r = 0; r < 1 + random() % 4; ++r)
      shares.push_back(1 + static_cast<int>(random() % 6));
    const int total = std::accumulate(shares.begin(), shares.end(), 0);
    std::vector<std::vector<int>> lists(shares.size());
    for (int id = 0; id < total; ++id) {
      const auto holder = random() % (shares.size() + 1);
      if (holder < shares.size()) lists[holder].push_back(id);
    }
    All kept;
    for (const auto& list : lists) kept.push_back(ids_of(list));
    const All rest = ids_to_compute(shares, kept);
    std::vector<int> seen;
    for (std::size_t r = 0; r < shares.size(); ++r) {
      EXPECT_TRUE(are_legal(kept[r], total));
      EXPECT_FALSE(overlap(kept[r], rest[r]));
      const Ids both = united(kept[r], rest[r]);
      EXPECT_TRUE(are_legal(both, total));
      EXPECT_EQ(count_of(both), count_of(kept[r]) + count_of(rest[r]));
      const auto list = listed(both);
      seen.insert(seen.end(), list.begin(), list.end());
    }
    std::ranges::sort(seen);
    Shares all(static_cast<std::size_t>(total));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(seen, all);
  }
}

TEST(StepIds, ThatAnotherProcessSendsAreChecked) {
  EXPECT_TRUE(are_legal({}, 0));
  EXPECT_TRUE(are_legal({{0, 2}, {3, 1}}, 4));
  for (const Ids& wrong : {Ids{{-1, 2}}, Ids{{0, 0}}, Ids{{0, -1}}, Ids{{3, 2}}, Ids{{4, 1}},
                           Ids{{0, 2}, {2, 1}}, Ids{{2, 1}, {0, 1}}, Ids{{1, 2147483647}}}) {
    EXPECT_FALSE(are_legal(wrong, 4)) << wrong.front().first << ", " << wrong.front().count;
  }
}

}  // namespace step_ids_test
}  // namespace weir::schedule
