// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/rms_norm.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace rms_norm_test {

using test::dot;
using test::Doubles;
using test::elements;
using test::Floats;
using test::floats;
using test::random_doubles;

// Elements between the vectors of y stay 0.
Doubles reference(RmsNormShape s, const Doubles& x, const Doubles& gamma) {
  const auto channels = static_cast<std::size_t>(s.channels);
  Doubles y(x.size());
  for (int r = 0; r < s.rows; ++r) {
    for (int h = 0; h < s.heads; ++h) {
      const auto at = static_cast<std::size_t>(r * s.stride + h * s.channels);
      double squares = 0;
      for (std::size_t c = 0; c < channels; ++c) squares += x[at + c] * x[at + c] / s.channels;
      for (std::size_t c = 0; c < channels; ++c) {
        y[at + c] = x[at + c] / std::sqrt(squares + double{s.epsilon}) * gamma[c];
      }
    }
  }
  return y;
}

struct RmsNorm : ::testing::TestWithParam<RmsNormShape> {
  RmsNormShape s = GetParam();
  std::size_t channels = static_cast<std::size_t>(s.channels);
  Doubles x = random_doubles(static_cast<std::size_t>(s.rows * s.stride), 1, 3);
  Doubles gamma = random_doubles(channels, 2);
  Doubles dy = random_doubles(x.size(), 4);
  Floats y = Floats(x.size()), rstd = Floats(static_cast<std::size_t>(s.rows * s.heads));

  void SetUp() override {
    test::run(RmsNormForward{s, elements(floats(x).data()), elements(floats(gamma).data()),
                             elements(y.data()), rstd.data()});
  }
  void backward(const float* residual, const Floats& up, Floats& dx, Floats& dgamma) {
    test::run(RmsNormBackward{s, elements(floats(x).data()), rstd.data(),
                              elements(floats(gamma).data()), elements(up.data()),
                              elements(residual), elements(dx.data()), dgamma.data()});
  }
};

TEST_P(RmsNorm, ForwardNormsEachVectorAndLeavesTheRest) {
  test::expect_close(y, reference(s, x, gamma));
}

TEST_P(RmsNorm, ApplyGivesTheSameBitsAgain) {
  Floats again(y.size());
  test::run(RmsNormApply{s, elements(floats(x).data()), rstd.data(), elements(floats(gamma).data()),
                         elements(again.data())});

  EXPECT_EQ(again, y);
}

TEST_P(RmsNorm, BackwardIsTheGradient) {
  Floats dx(x.size(), 0), dgamma(channels, 9);  // replaced
  backward(nullptr, floats(dy), dx, dgamma);

  const auto loss = [&](const Doubles& a, const Doubles& b) { return dot(reference(s, a, b), dy); };
  test::expect_gradient(dx, x, [&](const Doubles& v) { return loss(v, gamma); });
  test::expect_gradient(dgamma, gamma, [&](const Doubles& v) { return loss(x, v); });
}

TEST_P(RmsNorm, BackwardAddsTheResidualAndMayReplaceWhatItReads) {
  Floats alone(x.size(), 0), dgamma(channels, 0), again(channels, 0);
  backward(nullptr, floats(dy), alone, dgamma);
  Floats residual(x.size(), 2.0F), replaced = floats(dy);
  backward(residual.data(), floats(dy), residual, again);
  test::run(RmsNormBackward{s, elements(floats(x).data()), rstd.data(),
                            elements(floats(gamma).data()), elements(replaced.data()), nullptr,
                            elements(replaced.data()), again.data()});

  for (int r = 0; r < s.rows; ++r) {
    for (int i = 0; i < s.stride; ++i) {
      const auto at = static_cast<std::size_t>(r * s.stride + i);
      const bool inside = i < s.heads * s.channels;
      EXPECT_EQ(residual[at], inside ? 2.0F + alone[at] : 2.0F);
      EXPECT_EQ(replaced[at], inside ? alone[at] : static_cast<float>(dy[at]));
    }
  }
  EXPECT_EQ(again, dgamma);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         ::testing::Values(rms_norm_of_rows(1, 3, 1e-5F),
                                           rms_norm_of_rows(4, 13, 1e-6F),
                                           RmsNormShape{3, 2, 5, 12, 1e-6F},
                                           RmsNormShape{2, 3, 4, 20, 1e-5F}));

}  // namespace rms_norm_test
}  // namespace weir::stage::ops
