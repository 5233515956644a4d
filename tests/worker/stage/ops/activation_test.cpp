// SPDX-License-Identifier: Apache-2.0
// GELU and ReLU, and the exponential and tangent below them.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"
#include "worker/stage/ops/gelu.h"
#include "worker/stage/ops/relu.h"
#include "worker/stage/ops/vector.h"

namespace weir::stage::ops {
namespace activation_test {

using test::dot;
using test::Doubles;
using test::elements;
using test::Floats;
using test::floats;
using test::random_doubles;

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(VectorMath, ExponentialIsExactToFloatRounding) {
  for (double x = -87; x <= 88; x += 0.173) {
    const auto rounded = static_cast<float>(x);
    const double expected = std::exp(double{rounded});
    EXPECT_NEAR(exp_of(broadcast(rounded))[0] / expected, 1, 2e-7) << x;
  }
}

TEST(VectorMath, ExponentialHasSaneEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();

  EXPECT_EQ(exp_of(broadcast(0.0F))[0], 1.0F);
  EXPECT_EQ(exp_of(broadcast(-kInfinity))[0], 0.0F);
  EXPECT_EQ(exp_of(broadcast(-1000.0F))[3], 0.0F);
  EXPECT_TRUE(std::isfinite(exp_of(broadcast(kInfinity))[0]));
}

TEST(VectorMath, TangentIsCloseEverywhere) {
  for (double x = -30; x <= 30; x += 0.017) {
    EXPECT_NEAR(tanh_of(broadcast(static_cast<float>(x)))[0], std::tanh(x), 3e-7) << x;
  }
}

TEST(Gelu, IsTheFormOfGpt2AndItsGradient) {
  for (const std::size_t count : {1U, 4U, 7U, 30U}) {
    const Doubles x = random_doubles(count, count, 4);
    const Doubles dy = random_doubles(count, 99);
    Floats y(count), dx(count);
    test::run(GeluForward{count, elements(floats(x).data()), elements(y.data())});
    test::run(GeluBackward{count, elements(floats(x).data()), elements(floats(dy).data()),
                           elements(dx.data())});

    const auto reference = [](const Doubles& values) {
      Doubles result;
      for (const double value : values) result.push_back(gelu(value));
      return result;
    };
    test::expect_close(y, reference(x));
    test::expect_gradient(dx, x, [&](const Doubles& v) { return dot(reference(v), dy); });
  }
}

TEST(Gelu, GivesAnElementTheSameBitsWhereverItLies) {
  const Floats x = floats(random_doubles(9, 5, 3));
  Floats all(9), one(1);
  test::run(GeluForward{9, elements(x.data()), elements(all.data())});

  for (std::size_t i = 0; i < 9; ++i) {
    test::run(GeluForward{1, elements(&x[i]), elements(one.data())});
    EXPECT_EQ(one[0], all[i]);
  }
}

TEST(Relu, CutsAtZeroAndPassesGradientsAbove) {
  const Floats x = {-1.5F, 0, 2, -0.25F, 3};
  const Floats dy = {1, 2, 3, 4, 5};
  Floats y(5), dx(5);
  test::run(ReluForward{5, elements(x.data()), elements(y.data())});
  test::run(ReluBackward{5, elements(x.data()), elements(dy.data()), elements(dx.data())});

  EXPECT_EQ(y, (Floats{0, 0, 2, 0, 3}));
  EXPECT_EQ(dx, (Floats{0, 0, 3, 0, 5}));
}

}  // namespace activation_test
}  // namespace weir::stage::ops
