// SPDX-License-Identifier: Apache-2.0
// The sum of squares of a gradient, for its norm. The order of the additions depends only on the
// count. In each chunk of kSquaresChunk values, lane l of kSquaresLanes adds the squares of the
// values l, l + kSquaresLanes, ... in double, and a tree adds the lanes (the upper half to the
// lower one). The sums of the chunks are added in the same way, as if they were one chunk. The
// square of a float is exact in double. So the result is bit-equal on hosts and devices, with or
// without fused products.
#pragma once

#include "worker/stage/ops/element.h"
#include "worker/stage/ops/exact_sum.h"

namespace weir::stage::ops {

inline constexpr int kSquaresLanes = 256;
inline constexpr int kSquaresChunk = 64 * kSquaresLanes;

// sum = 0 if count is 0.
struct SumSquares {
  std::size_t count;
  StepGradient values;
  double* sum;
  auto fields() const { return std::tie(count, values, sum); }
};
void run_on_host(const SumSquares& op, const Host& host);
void run_on_cuda(const SumSquares& op, CudaQueue& queue);

}  // namespace weir::stage::ops
