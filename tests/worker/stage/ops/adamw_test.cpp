// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/adamw.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace adamw_test {

using test::Doubles;
using test::Floats;

TEST(AdamW, FollowsThePaperOverSeveralSteps) {
  constexpr std::size_t kCount = 11;
  Doubles p = test::random_doubles(kCount, 1), m(kCount, 0), v(kCount, 0);
  Floats value = test::floats(p), m_actual(kCount, 0), v_actual(kCount, 0);
  const double rate = 0.01, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1;
  for (int t = 1; t <= 5; ++t) {
    const Doubles g = test::random_doubles(kCount, static_cast<std::uint64_t>(100 + t));
    const double correction1 = 1 - std::pow(beta1, t);
    const double correction2 = 1 - std::pow(beta2, t);
    for (std::size_t i = 0; i < kCount; ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      p[i] -=
          rate * (m[i] / correction1 / (std::sqrt(v[i] / correction2) + epsilon) + decay * p[i]);
    }
    const auto f = [](double x) { return static_cast<float>(x); };
    const AdamWStep step{f(rate),  f(beta1),       f(beta2),      f(epsilon),
                         f(decay), f(correction1), f(correction2)};
    test::run(AdamW{step, kCount, test::floats(g).data(), value.data(), m_actual.data(),
                    v_actual.data()});
  }

  test::expect_close(value, p);
  test::expect_close(m_actual, m);
  test::expect_close(v_actual, v);
}

TEST(AdamW, OnlyDecaysWithoutAGradient) {
  Floats value = {2, -4}, m = {0, 0}, v = {0, 0};
  const Floats gradient = {0, 0};
  test::run(AdamW{{0.5F, 0.9F, 0.95F, 1e-8F, 0.1F, 0.1F, 0.05F},
                  2,
                  gradient.data(),
                  value.data(),
                  m.data(),
                  v.data()});

  EXPECT_FLOAT_EQ(value[0], 1.9F);
  EXPECT_FLOAT_EQ(value[1], -3.8F);
}

}  // namespace adamw_test
}  // namespace weir::stage::ops
