// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/linear.h"

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace linear_test {

using test::dot;
using test::Doubles;
using test::elements;
using test::Floats;
using test::floats;
using test::random_doubles;

Doubles reference(LinearShape s, const Doubles& x, const Doubles& w, const Doubles& b) {
  Doubles y;
  for (int r = 0; r < s.rows; ++r) {
    for (int o = 0; o < s.outputs; ++o) {
      double sum = b[static_cast<std::size_t>(o)];
      for (int i = 0; i < s.inputs; ++i) {
        sum += x[static_cast<std::size_t>(r * s.inputs + i)] *
               w[static_cast<std::size_t>(o * s.inputs + i)];
      }
      y.push_back(sum);
    }
  }
  return y;
}

struct Linear : ::testing::TestWithParam<LinearShape> {
  static std::size_t count(int a, int b) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
  }
  LinearShape s = GetParam();
  Doubles x = random_doubles(count(s.rows, s.inputs), 1);
  Doubles w = random_doubles(count(s.outputs, s.inputs), 2);
  Doubles b = random_doubles(count(s.outputs, 1), 3);
  Doubles dy = random_doubles(count(s.rows, s.outputs), 4);
};

TEST_P(Linear, ForwardIsTheProductPlusBiasAndResidual) {
  Floats y(dy.size());
  test::run(LinearForward{s, elements(floats(x).data()), elements(floats(w).data()),
                          elements(floats(b).data()), nullptr, elements(y.data())});
  Doubles expected = reference(s, x, w, b);
  test::expect_close(y, expected);

  test::run(LinearForward{s, elements(floats(x).data()), elements(floats(w).data()),
                          elements(floats(b).data()), elements(floats(dy).data()),
                          elements(y.data())});
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += dy[i];
  test::expect_close(y, expected);

  test::run(LinearForward{s, elements(floats(x).data()), elements(floats(w).data()), nullptr,
                          nullptr, elements(y.data())});
  test::expect_close(y, reference(s, x, w, Doubles(b.size(), 0)));
}

TEST_P(Linear, BackwardIsTheGradient) {
  Floats dx(x.size(), 9), dw(w.size(), 9), db(b.size(), 9);  // replaced
  test::run(LinearBackwardInput{s, elements(floats(dy).data()), elements(floats(w).data()),
                                elements(dx.data())});
  test::run(LinearBackwardParameters{s, elements(floats(x).data()), elements(floats(dy).data()),
                                     dw.data(), db.data()});

  test::expect_gradient(dx, x, [&](const Doubles& v) { return dot(reference(s, v, w, b), dy); });
  test::expect_gradient(dw, w, [&](const Doubles& v) { return dot(reference(s, x, v, b), dy); });
  test::expect_gradient(db, b, [&](const Doubles& v) { return dot(reference(s, x, w, v), dy); });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear,
                         ::testing::Values(LinearShape{1, 1, 1}, LinearShape{4, 8, 16},
                                           LinearShape{7, 5, 19}));

}  // namespace linear_test
}  // namespace weir::stage::ops
