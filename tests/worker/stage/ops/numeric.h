// SPDX-License-Identifier: Apache-2.0
// Checks of float operations against references in double: values directly, gradients by central
// differences of the reference. With steps of 1e-5 the differences are exact to about 1e-9, so the
// tolerance is the rounding of float sums: 1e-5 of the largest element.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "worker/base/random.h"
#include "worker/stage/ops/element.h"
#include "worker/stage/ops/team.h"

namespace weir::test {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

constexpr double kTolerance = 1e-5;

// Exactly representable as floats; uniform in [-scale, scale).
inline Doubles random_doubles(std::size_t count, std::uint64_t seed, double scale = 1) {
  Random random(seed);
  Doubles values(count);
  for (auto& value : values) value = static_cast<float>(scale * (2 * random.uniform() - 1));
  return values;
}

inline Floats floats(const Doubles& values) {
  Floats result;
  for (const double value : values) result.push_back(static_cast<float>(value));
  return result;
}

// Floats as the operand of an op in float32.
inline const stage::ops::Element* elements(const float* values) {
  return reinterpret_cast<const stage::ops::Element*>(values);
}
inline stage::ops::Element* elements(float* values) {
  return reinterpret_cast<stage::ops::Element*>(values);
}
template <class Op>
void run(const Op& op) {
  stage::ops::Team alone(1);
  run_on_host(op, {.precision = stage::Precision::kFp32, .team = alone});
}

inline double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline double largest(const Doubles& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

inline void expect_close(const Floats& actual, const Doubles& expected,
                         double tolerance = kTolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  const double limit = tolerance * std::max(largest(expected), 1e-3);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], limit) << "element " << i;
  }
}

inline Doubles differences(Doubles at, const std::function<double(const Doubles&)>& loss) {
  constexpr double kStep = 1e-5;
  Doubles gradient;
  for (auto& value : at) {
    const double before = value;
    value = before + kStep;
    const double above = loss(at);
    value = before - kStep;
    gradient.push_back((above - loss(at)) / (2 * kStep));
    value = before;
  }
  return gradient;
}

// `loss` as a function of the input whose gradient is checked, at `at`.
inline void expect_gradient(const Floats& actual, const Doubles& at,
                            const std::function<double(const Doubles&)>& loss) {
  expect_close(actual, differences(at, loss));
}

}  // namespace weir::test
