// SPDX-License-Identifier: Apache-2.0
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "worker/schedule/caps.h"
#include "worker/schedule/dispatch.h"

namespace weir::schedule {
namespace order_test {

// "F0 F1 B0": runs of one kind are written "F0-5".
std::string text(const Order& order) {
  std::ostringstream out;
  for (std::size_t i = 0; i < order.size();) {
    std::size_t j = i;
    while (j + 1 < order.size() && order[j + 1].kind == order[i].kind) ++j;
    if (i > 0) out << ' ';
    out << (order[i].kind == OpKind::kForward ? 'F' : 'B') << order[i].micro_batch;
    if (j > i) out << '-' << order[j].micro_batch;
    i = j + 1;
  }
  return out.str();
}

Schedule strict(std::vector<int> caps) {
  Schedule schedule;
  schedule.dispatch = Dispatch::kStrict;
  schedule.k = k_of_caps(caps);
  schedule.caps = std::move(caps);
  return schedule;
}

// Golden orders of S=3 M=6 (worker/schedule/README.md "Golden vectors").
TEST(Order, KfkbOfTwo) {
  EXPECT_EQ(text(kfkb_order(3, 0, 6, 2)), "F0-5 B0-5");
  EXPECT_EQ(text(kfkb_order(3, 1, 6, 2)), "F0-3 B0-1 F4-5 B2-5");
  EXPECT_EQ(text(kfkb_order(3, 2, 6, 2)), "F0-1 B0-1 F2-3 B2-3 F4-5 B4-5");
}

TEST(Order, KfkbWithRaggedTail) {
  EXPECT_EQ(text(kfkb_order(3, 0, 6, 4)), "F0-5 B0-5");
  EXPECT_EQ(text(kfkb_order(3, 1, 6, 4)), "F0-5 B0-5");
  EXPECT_EQ(text(kfkb_order(3, 2, 6, 4)), "F0-3 B0-3 F4-5 B4-5");
}

TEST(Order, SlackOfTwoFillsTheCap) {
  const Schedule schedule = strict(slack_caps(3, 6, 2));
  EXPECT_EQ(text(order_of(schedule, 3, 0, 6)), "F0-4 B0 F5 B1-5");
  EXPECT_EQ(text(order_of(schedule, 3, 1, 6)), "F0-2 B0 F3 B1 F4 B2 F5 B3-5");
  EXPECT_EQ(text(order_of(schedule, 3, 2, 6)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
}

TEST(Order, KfkbCapsGiveKfkbOrderAndOthersFill) {
  const Schedule grouped = strict({6, 4, 2});
  const Schedule uneven = strict({6, 4, 1});
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(order_of(grouped, 3, s, 12), kfkb_order(3, s, 12, 2));
    EXPECT_EQ(order_of(uneven, 3, s, 12), fill_order(12, uneven.caps[static_cast<std::size_t>(s)]));
  }
}

TEST(Order, GpipeRunsAllForwardsFirst) {
  Schedule schedule = strict({4, 4, 4});
  schedule.family = Family::kGpipe;
  for (int s = 0; s < 3; ++s) EXPECT_EQ(text(order_of(schedule, 3, s, 4)), "F0-3 B0-3");
}

TEST(Order, OneIsOneForwardOneBackward) {
  for (int s = 0; s < 4; ++s) EXPECT_EQ(kfkb_order(4, s, 7, 1), fill_order(7, 4 - s));
}

TEST(Order, FillClipsToTheStep) {
  EXPECT_EQ(text(fill_order(3, 9)), "F0-2 B0-2");
  EXPECT_EQ(text(fill_order(2, 0)), "F0 B0 F1 B1");
}

// I1, no backward before its forward, and the peak: worker/schedule/README.md "Notation".
TEST(Order, EachKindRisesByOneAndPeakIsTheCap) {
  for (int S = 1; S <= 8; ++S)
    for (int M = 1; M <= 17; ++M)
      for (int k = 1; k <= std::min(M, 5); ++k)
        for (int s = 0; s < S; ++s) {
          int forwards = 0, backwards = 0, peak = 0;
          for (const Op& op : kfkb_order(S, s, M, k)) {
            int& count = op.kind == OpKind::kForward ? forwards : backwards;
            ASSERT_EQ(op.micro_batch, count++);
            ASSERT_LE(backwards, forwards);
            peak = std::max(peak, forwards - backwards);
          }
          ASSERT_EQ(forwards, M);
          ASSERT_EQ(backwards, M);
          ASSERT_EQ(peak, std::min(M, k * (S - s))) << "S=" << S << " s=" << s << " k=" << k;
        }
}

}  // namespace order_test
}  // namespace weir::schedule
