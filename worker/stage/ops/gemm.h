// SPDX-License-Identifier: Apache-2.0
// C (m,n) = A (m,k) B (k,n), or C += A B, in float32 on the host. A and B may have any strides, so
// a transposed matrix is a view; the rows of C are contiguous. Each element of C is one serial sum
// over k in rising order, without fused multiply-add. So the result is bit-equal on every machine,
// for every tile size, instruction set and number of threads.
#pragma once

#include <cstddef>

#include "worker/stage/ops/team.h"

namespace weir::stage::ops {

struct MatrixView {
  const float* data;
  std::ptrdiff_t row_stride, column_stride;
};
inline MatrixView rows_of(const float* data, std::ptrdiff_t row_stride) {
  return {data, row_stride, 1};
}
inline MatrixView transposed(MatrixView view) {
  return {view.data, view.column_stride, view.row_stride};
}

struct GemmShape {
  int m, n, k;
};

enum class Sum : unsigned char { kReplace, kAdd };  // C = A B or C += A B

void gemm(GemmShape shape, MatrixView a, MatrixView b, float* c, std::ptrdiff_t c_row_stride,
          Sum sum);  // on the caller's thread
void gemm(Team& team, GemmShape shape, MatrixView a, MatrixView b, float* c,
          std::ptrdiff_t c_row_stride, Sum sum);

// The instruction set of the inner loop. Chosen at the first call; tests compare all of them.
enum class GemmKernel : unsigned char { kBaseline, kAvx2, kAvx512 };
bool supported(GemmKernel kernel);
void gemm_with(GemmKernel kernel, GemmShape shape, MatrixView a, MatrixView b, float* c,
               std::ptrdiff_t c_row_stride, Sum sum);

}  // namespace weir::stage::ops
