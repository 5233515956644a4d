// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/caps.h"

#include <gtest/gtest.h>

namespace weir::schedule {
namespace caps_test {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

std::vector<int> caps_of_4_equal_stages(nanoseconds link, int micro_batches) {
  const std::vector<StageTime> stages(4, {.forward = 10ms, .backward = 20ms});
  return lean_caps(stages, std::vector<nanoseconds>(3, link), micro_batches);
}

TEST(LeanCaps, AreThoseOf1F1BWhenLinksAreFree) {
  EXPECT_EQ(caps_of_4_equal_stages(0ms, 32), (std::vector{4, 3, 2, 1}));
}

TEST(LeanCaps, RiseWhenALinkTakesMoreThanHalfAPeriod) {
  EXPECT_EQ(caps_of_4_equal_stages(15ms, 32), (std::vector{7, 5, 3, 1}));
  EXPECT_EQ(caps_of_4_equal_stages(16ms, 32), (std::vector{10, 7, 4, 1}));
  EXPECT_EQ(caps_of_4_equal_stages(45ms, 32), (std::vector{13, 9, 5, 1}));
}

TEST(LeanCaps, NeverExceedTheNumberOfMicroBatches) {
  EXPECT_EQ(caps_of_4_equal_stages(16ms, 8), (std::vector{8, 7, 4, 1}));
}

TEST(LeanCaps, NeverRiseWithTheStage) {
  const std::vector<StageTime> stages{{1ms, 1ms}, {1ms, 1ms}, {30ms, 60ms}, {1ms, 1ms}};
  const std::vector<int> caps = lean_caps(stages, std::vector<nanoseconds>{0ms, 0ms, 90ms}, 16);
  for (std::size_t s = 1; s < caps.size(); ++s) EXPECT_LE(caps[s], caps[s - 1]);
}

TEST(Caps, OfKfkbAndSlack) {
  EXPECT_EQ(kfkb_caps(4, 32, 2), (std::vector{8, 6, 4, 2}));
  EXPECT_EQ(kfkb_caps(4, 5, 2), (std::vector{5, 5, 4, 2}));
  EXPECT_EQ(slack_caps(4, 32, 2), (std::vector{7, 5, 3, 1}));
  EXPECT_EQ(slack_caps(4, 32, 1), kfkb_caps(4, 32, 1));
}

TEST(Caps, KIsTheSmallestThatCovers) {
  EXPECT_EQ(k_of_caps(std::vector{8, 6, 3, 1}), 2);
  EXPECT_EQ(k_of_caps(std::vector{4, 3, 2, 1}), 1);
  EXPECT_EQ(k_of_caps(std::vector{5, 3, 2, 1}), 2);
  for (int k = 1; k <= 8; ++k) EXPECT_EQ(k_of_caps(kfkb_caps(4, 8, k)), k);
}

TEST(Caps, OfOneRunStrict) {
  EXPECT_EQ(dispatch_in_force(std::vector{4, 3, 2, 1}, Dispatch::kHint), Dispatch::kStrict);
  EXPECT_EQ(dispatch_in_force(std::vector{3, 3, 2, 1}, Dispatch::kHint), Dispatch::kStrict);
  EXPECT_EQ(dispatch_in_force(std::vector{5, 3, 2, 1}, Dispatch::kHint), Dispatch::kHint);
  EXPECT_EQ(dispatch_in_force(std::vector{5, 3, 2, 1}, Dispatch::kStrict), Dispatch::kStrict);
}

TEST(Credits, FollowTheKOfTheCaps) {
  Schedule schedule;
  schedule.caps = {4, 3, 2, 1};
  EXPECT_EQ(credits_of(schedule).send_window, 3) << "k=1 has the buffers of k=2";
  schedule.caps = {16, 12, 8, 4};
  EXPECT_EQ(credits_of(schedule).send_window, 5);
  EXPECT_EQ(credits_of(schedule).receive_forward, 5);
  EXPECT_EQ(credits_of(schedule).receive_backward, 3);
}

}  // namespace caps_test
}  // namespace weir::schedule
