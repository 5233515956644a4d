// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/layernorm.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace layernorm_test {

using test::dot;
using test::Doubles;
using test::elements;
using test::Floats;
using test::floats;
using test::random_doubles;

Doubles reference(LayerNormShape s, const Doubles& x, const Doubles& gamma, const Doubles& beta) {
  const auto channels = static_cast<std::size_t>(s.channels);
  Doubles y;
  for (std::size_t r = 0; r < x.size(); r += channels) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < channels; ++c) mean += x[r + c] / s.channels;
    for (std::size_t c = 0; c < channels; ++c) {
      variance += (x[r + c] - mean) * (x[r + c] - mean) / s.channels;
    }
    for (std::size_t c = 0; c < channels; ++c) {
      y.push_back((x[r + c] - mean) / std::sqrt(variance + 1e-5) * gamma[c] + beta[c]);
    }
  }
  return y;
}

struct LayerNorm : ::testing::TestWithParam<LayerNormShape> {
  LayerNormShape s = GetParam();
  std::size_t channels = static_cast<std::size_t>(s.channels);
  std::size_t rows = static_cast<std::size_t>(s.rows);
  Doubles x = random_doubles(rows * channels, 1, 3);
  Doubles gamma = random_doubles(channels, 2);
  Doubles beta = random_doubles(channels, 3);
  Doubles dy = random_doubles(rows * channels, 4);
  Floats y = Floats(x.size()), statistics = Floats(2 * rows);

  void SetUp() override {
    test::run(LayerNormForward{s, elements(floats(x).data()), elements(floats(gamma).data()),
                               elements(floats(beta).data()), elements(y.data()),
                               statistics.data()});
  }
};

TEST_P(LayerNorm, ForwardNormsEachRow) {
  test::expect_close(y, reference(s, x, gamma, beta));
}

TEST_P(LayerNorm, ApplyGivesTheSameBitsAgain) {
  Floats again(y.size());
  test::run(LayerNormApply{s, elements(floats(x).data()), statistics.data(),
                           elements(floats(gamma).data()), elements(floats(beta).data()),
                           elements(again.data())});

  EXPECT_EQ(again, y);
}

TEST_P(LayerNorm, BackwardIsTheGradient) {
  Floats dx(x.size(), 9), dgamma(channels, 9), dbeta(channels, 9);  // replaced
  test::run(LayerNormBackward{s, elements(floats(x).data()), statistics.data(),
                              elements(floats(gamma).data()), elements(floats(dy).data()), nullptr,
                              elements(dx.data()), dgamma.data(), dbeta.data()});

  const auto loss = [&](const Doubles& a, const Doubles& b, const Doubles& c) {
    return dot(reference(s, a, b, c), dy);
  };
  test::expect_gradient(dx, x, [&](const Doubles& v) { return loss(v, gamma, beta); });
  test::expect_gradient(dgamma, gamma, [&](const Doubles& v) { return loss(x, v, beta); });
  test::expect_gradient(dbeta, beta, [&](const Doubles& v) { return loss(x, gamma, v); });
}

TEST_P(LayerNorm, BackwardAddsTheResidualInPlace) {
  Floats dx(x.size()), dgamma(channels, 0), dbeta(channels, 0);
  const auto backward = [&](const float* residual) {
    test::run(LayerNormBackward{s, elements(floats(x).data()), statistics.data(),
                                elements(floats(gamma).data()), elements(floats(dy).data()),
                                elements(residual), elements(dx.data()), dgamma.data(),
                                dbeta.data()});
  };
  backward(nullptr);
  const Floats alone = dx;
  std::fill(dx.begin(), dx.end(), 2.0F);
  backward(dx.data());

  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], 2.0F + alone[i]);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LayerNorm,
                         ::testing::Values(LayerNormShape{1, 3}, LayerNormShape{3, 16},
                                           LayerNormShape{4, 13}));

}  // namespace layernorm_test
}  // namespace weir::stage::ops
