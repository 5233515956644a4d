// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/rotary.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace rotary_test {

using test::Doubles;
using test::elements;
using test::Floats;
using test::floats;
using test::random_doubles;

Floats turned(RotaryShape shape, Floats values) {
  test::run(Rotary{shape, elements(values.data())});
  return values;
}

Doubles reference(RotaryShape s, Doubles x) {
  const int half = s.size / 2;
  for (int b = 0; b < s.samples; ++b) {
    for (int t = 0; t < s.sequence; ++t) {
      for (int h = 0; h < s.heads; ++h) {
        for (int i = 0; i < half; ++i) {
          const double angle = t * std::pow(double{s.theta}, -2.0 * i / s.size);
          const auto at =
              static_cast<std::size_t>((b * s.sequence + t) * s.stride + h * s.size + i);
          const auto other = at + static_cast<std::size_t>(half);
          const double first = x[at], second = x[other];
          x[at] = first * std::cos(angle) - second * std::sin(angle);
          x[other] = second * std::cos(angle) + first * std::sin(angle);
        }
      }
    }
  }
  return x;
}

Doubles values_of(RotaryShape s) {
  return random_doubles(static_cast<std::size_t>(s.samples * s.sequence * s.stride), 3);
}

TEST(RotaryPositions, TurnPairsByTheirPositionAndLeaveTheRestOfARow) {
  for (const RotaryShape shape :
       {RotaryShape{2, 5, 3, 8, 40, 1, 1e4F}, RotaryShape{1, 30, 2, 6, 12, 1, 1e6F}}) {
    const Doubles x = values_of(shape);
    test::expect_close(turned(shape, floats(x)), reference(shape, x));
  }
}

TEST(RotaryPositions, TurnBackToWhatWas) {
  RotaryShape shape{2, 50, 3, 16, 64, 1, 1e4F};
  const Doubles x = values_of(shape);
  const Floats there = turned(shape, floats(x));
  shape.direction = -1;
  test::expect_close(turned(shape, there), x);
}

// The wavelengths of theta 1e4 and 64 channels are between 6 and 47,000 tokens.
TEST(RotaryPositions, OfLlama3AreSlowerForLongWavelengths) {
  const RotaryShape plain{1, 1, 1, 64, 64, 1, 1e4F};
  RotaryShape scaled = plain;
  scaled.factor = 8;
  scaled.low = 1;
  scaled.high = 4;
  scaled.original = 1024;
  for (int i = 0; i < 32; ++i) {
    const double frequency = std::pow(1e4, -i / 32.0), wavelength = 2 * M_PI / frequency;
    double expected = frequency;
    if (wavelength > 1024) expected = frequency / 8;
    if (wavelength >= 256 && wavelength <= 1024) {
      const double smooth = (1024 / wavelength - 1) / 3;
      expected = (1 - smooth) * frequency / 8 + smooth * frequency;
    }
    EXPECT_NEAR(rotary_frequency(plain, i) / frequency, 1, 1e-7) << i;
    EXPECT_NEAR(rotary_frequency(scaled, i) / expected, 1, 1e-6) << i;
  }
  EXPECT_EQ(rotary_frequency(plain, 0), 1.0F);
}

}  // namespace rotary_test
}  // namespace weir::stage::ops
