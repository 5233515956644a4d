// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/swiglu.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace swiglu_test {

using test::dot;
using test::Doubles;
using test::elements;
using test::Floats;
using test::floats;
using test::random_doubles;

Doubles reference(SwigluShape s, const Doubles& gate_up) {
  const auto channels = static_cast<std::size_t>(s.channels);
  Doubles y;
  for (std::size_t r = 0; r < gate_up.size(); r += 2 * channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const double gate = gate_up[r + c];
      y.push_back(gate / (1 + std::exp(-gate)) * gate_up[r + channels + c]);
    }
  }
  return y;
}

TEST(Swiglu, IsTheGatedValueAndItsGradient) {
  for (const SwigluShape shape : {SwigluShape{1, 1}, {3, 8}, {4, 13}}) {
    const auto count = static_cast<std::size_t>(shape.rows * shape.channels);
    const Doubles gate_up = random_doubles(2 * count, 1, 4), dy = random_doubles(count, 2);
    Floats y(count), dgate_up(2 * count);
    test::run(SwigluForward{shape, elements(floats(gate_up).data()), elements(y.data())});
    test::run(SwigluBackward{shape, elements(floats(gate_up).data()), elements(floats(dy).data()),
                             elements(dgate_up.data())});

    test::expect_close(y, reference(shape, gate_up));
    test::expect_gradient(dgate_up, gate_up,
                          [&](const Doubles& v) { return dot(reference(shape, v), dy); });
  }
}

TEST(Swiglu, OfFarGatesIsTheValueOrNothing) {
  const Floats gate_up = {100, -100, 3, 3};
  Floats y(2), dgate_up(4);
  const Floats dy = {1, 1};
  test::run(SwigluForward{{1, 2}, elements(gate_up.data()), elements(y.data())});
  test::run(SwigluBackward{
      {1, 2}, elements(gate_up.data()), elements(dy.data()), elements(dgate_up.data())});

  EXPECT_EQ(y[0], 300);
  EXPECT_NEAR(y[1], 0, 1e-30);
  for (const float one : dgate_up) EXPECT_TRUE(std::isfinite(one));
}

}  // namespace swiglu_test
}  // namespace weir::stage::ops
