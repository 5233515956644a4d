// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/gemm.h"

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace gemm_test {

using test::Floats;

Floats random_floats(int count, std::uint64_t seed) {
  return test::floats(test::random_doubles(static_cast<std::size_t>(count), seed));
}

float at(MatrixView view, int row, int column) {
  return view.data[row * view.row_stride + column * view.column_stride];
}

// The specification: each element is one serial sum in rising k, product and sum rounded apart.
Floats reference(GemmShape shape, MatrixView a, MatrixView b, Floats c, int stride, Sum sum) {
  for (int i = 0; i < shape.m; ++i) {
    for (int j = 0; j < shape.n; ++j) {
      float& element = c[static_cast<std::size_t>(i * stride + j)];
      if (sum == Sum::kReplace) element = 0;
      for (int p = 0; p < shape.k; ++p) element += at(a, i, p) * at(b, p, j);
    }
  }
  return c;
}

// Within one tile, ragged at every edge, beyond one packed block in each direction.
const std::vector<GemmShape> kShapes = {{1, 1, 1},   {6, 16, 8},   {7, 17, 3},    {5, 40, 300},
                                        {97, 20, 9}, {13, 129, 5}, {100, 130, 1}, {3, 2, 0}};

TEST(Gemm, IsOneSerialSumAnElementOnEveryInstructionSet) {
  for (const GemmShape shape : kShapes) {
    const Floats a = random_floats(shape.m * shape.k, 1);
    const Floats b = random_floats(shape.k * shape.n, 2);
    const int stride = shape.n + 3;
    const Floats c = random_floats(shape.m * stride, 3);
    for (const Sum sum : {Sum::kReplace, Sum::kAdd}) {
      const Floats expected =
          reference(shape, rows_of(a.data(), shape.k), rows_of(b.data(), shape.n), c, stride, sum);
      for (const auto kernel : {GemmKernel::kBaseline, GemmKernel::kAvx2, GemmKernel::kAvx512}) {
        if (!supported(kernel)) continue;
        Floats actual = c;
        gemm_with(kernel, shape, rows_of(a.data(), shape.k), rows_of(b.data(), shape.n),
                  actual.data(), stride, sum);
        EXPECT_EQ(actual, expected) << shape.m << ' ' << shape.n << ' ' << shape.k;
      }
    }
  }
}

TEST(Gemm, ReadsTransposedMatrices) {
  const GemmShape shape{19, 23, 11};
  const Floats a = random_floats(shape.m * shape.k, 1);
  const Floats b = random_floats(shape.k * shape.n, 2);
  const MatrixView a_view = transposed(rows_of(a.data(), shape.m));
  const MatrixView b_view = transposed(rows_of(b.data(), shape.k));
  Floats actual(static_cast<std::size_t>(shape.m * shape.n));

  gemm(shape, a_view, b_view, actual.data(), shape.n, Sum::kReplace);

  EXPECT_EQ(actual, reference(shape, a_view, b_view, actual, shape.n, Sum::kReplace));
}

TEST(Gemm, AlwaysHasAKernel) {
  EXPECT_TRUE(supported(GemmKernel::kBaseline));
}

}  // namespace gemm_test
}  // namespace weir::stage::ops
