// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/verdict.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace weir::engine {
namespace verdict_test {

TEST(GradClip, AddsLayersFromTheFirstToTheLast) {
  // In another order the small ones would survive.
  EXPECT_EQ(sum_in_order(std::vector<double>{1e30, 1, 1}), 1e30);
  EXPECT_EQ(sum_in_order(std::vector<double>{1, 1, 1e30, -1e30}), 0);
}

TEST(GradClip, ScalesWhatIsAboveTheLimitOnly) {
  EXPECT_EQ(clip_factor(36, 6), 1);
  EXPECT_EQ(clip_factor(36, 3), 0.5F);
  EXPECT_EQ(clip_factor(0, 3), 1);
  EXPECT_EQ(clip_factor(36, 0), 1) << "no limit";
}

TEST(GradClip, LeavesGradientsAloneWhenTheNormIsNotFinite) {
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1), 1);
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1), 1);
}

TEST(GradClip, NothingIsUpdatedWithWhatIsNoFiniteNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(is_usable(0, 0));
  EXPECT_TRUE(is_usable(1e30, 0));
  for (const double limit : {0.0, 1.0}) {
    EXPECT_FALSE(is_usable(infinity, limit));
    EXPECT_FALSE(is_usable(nan, limit));
  }
  EXPECT_FALSE(is_usable(1e39, 0)) << "its square root squared is no float";
  EXPECT_TRUE(is_usable(1e39, 1)) << "it is scaled down first";
}

TEST(GradClip, ALossThatIsNoFiniteNumberSpoilsTheSum) {
  EXPECT_EQ(with_loss({1, 2}, 0.5), (std::vector<double>{1, 2}));
  EXPECT_FALSE(
      is_usable(sum_in_order(with_loss({1, 2}, std::numeric_limits<double>::infinity())), 0));
}

TEST(Verdict, AndNotesComeBackAsTheyWere) {
  const Note note{.squares = {0.1, 1e-300, 7}, .loss = 2.5};
  const auto bytes = encode_note(note);
  EXPECT_EQ(bytes.size(), note_bytes(3));
  EXPECT_EQ(decode_note(bytes).squares, note.squares);
  EXPECT_EQ(decode_note(bytes).loss, 2.5);
  const auto verdict = decode_verdict(encode_verdict({.squares = 0.1, .loss = 2.5}, 2), 2);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->squares, 0.1);
  EXPECT_EQ(verdict->loss, 2.5);
}

TEST(Verdict, OfARankWithAnotherLimitIsRefused) {
  const auto verdict = decode_verdict(encode_verdict({.squares = 0.1, .loss = 2.5}, 1), 0.5);

  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().message, "--grad-clip is 0.5 here, 1 on the stage before");
}

}  // namespace verdict_test
}  // namespace weir::engine
