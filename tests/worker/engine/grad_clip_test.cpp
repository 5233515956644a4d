// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/grad_clip.h"

#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::engine {
namespace {

using testing::ElementsAre;

// Parameters of layers 5 and 6, whose gradients the test holds.
struct Gradients {
  std::vector<float> a{3, 4}, b{1}, c{2, 2};
  std::vector<stage::Parameter> parameters() {
    return {{.layer = 5, .name = "a", .gradient = a},
            {.layer = 5, .name = "b", .gradient = b},
            {.layer = 6, .name = "c", .gradient = c}};
  }
};

TEST(GradClip, AddsUpTheSquaresOfEachLayer) {
  Gradients gradients;
  EXPECT_THAT(layer_squares(gradients.parameters(), 3), ElementsAre(26, 8, 0));
  EXPECT_THAT(layer_squares({}, 2), ElementsAre(0, 0)) << "layers without parameters count";
}

TEST(GradClip, AddsLayersFromTheFirstToTheLast) {
  // In another order the small ones would survive.
  EXPECT_EQ(sum_in_order(std::vector<double>{1e30, 1, 1}), 1e30);
  EXPECT_EQ(sum_in_order(std::vector<double>{1, 1, 1e30, -1e30}), 0);
}

TEST(GradClip, ScalesWhatIsAboveTheLimitOnly) {
  Gradients gradients;
  clip(gradients.parameters(), 36, 6);
  EXPECT_THAT(gradients.a, ElementsAre(3, 4));

  clip(gradients.parameters(), 36, 3);

  EXPECT_THAT(gradients.a, ElementsAre(1.5, 2));
  EXPECT_THAT(gradients.c, ElementsAre(1, 1));
}

TEST(GradClip, LeavesGradientsAloneWhenTheNormIsNotFinite) {
  Gradients gradients;
  clip(gradients.parameters(), std::numeric_limits<double>::infinity(), 1);
  clip(gradients.parameters(), std::numeric_limits<double>::quiet_NaN(), 1);
  EXPECT_THAT(gradients.a, ElementsAre(3, 4));
}

TEST(GradClip, NotesComeBackAsTheyWere) {
  const std::vector<double> squares{0.1, 1e-300, 7};
  EXPECT_EQ(decode_squares(encode_squares(squares)), squares);
  const auto verdict = decode_verdict(encode_verdict(0.1, 2), 2);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(*verdict, 0.1);
}

TEST(GradClip, RanksWithOtherLimitsFindOut) {
  const auto verdict = decode_verdict(encode_verdict(0.1, 1), 0.5);

  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().message, "--grad-clip is 0.5 here, 1 on the stage before");
}

}  // namespace
}  // namespace weir::engine
