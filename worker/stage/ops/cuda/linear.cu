// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt. What is row-major (R,C) for the op is column-major (C,R) for the product.
#include "worker/stage/ops/cuda/column_sum.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/linear.h"

namespace weir::stage::ops {
namespace {

// A thread adds kWidth neighbouring columns, which it loads at once; kWidth divides their number.
constexpr int kSumWidth = 4;
template <int kWidth, class T>
__global__ void column_sums_kernel(int rows, int columns, const T* x, float* partial) {
  add_slice<kWidth>(rows, columns, partial, [=](int row, int column, float* sums) {
    const auto pack = load<kWidth>(x + static_cast<std::size_t>(row) * columns + column);
    for (int e = 0; e < kWidth; ++e) sums[e] += wide(pack.of[e]);
  });
}

}  // namespace

// y^T = w x^T, with w stored as (O,I) = column-major (I,O).
void run_on_cuda(const LinearForward& op, CudaQueue& queue) {
  const LinearShape s = op.shape;
  queue.multiply({s.outputs, s.rows, s.inputs, true, false, queue.precision, queue.precision},
                 {op.weight, op.x, op.residual, op.bias, op.y});
}

void run_on_cuda(const LinearBackwardParameters& op, CudaQueue& queue) {
  const LinearShape s = op.shape;
  queue.multiply({s.inputs, s.outputs, s.rows, false, true, queue.precision, Precision::kFp32},
                 {op.x, op.dy, nullptr, nullptr, op.dweight});
  if (op.dbias == nullptr) return;
  float* slices = queue.scratch<float>(column_sum_floats(s.rows, s.outputs));
  if (slices == nullptr) return;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    const bool packs = s.outputs % kSumWidth == 0 && aligned(as<T>(op.dy));
    start({queue.stream, slice_blocks(s.rows, s.outputs, packs ? kSumWidth : 1), warps_of_block()},
          packs ? column_sums_kernel<kSumWidth, T> : column_sums_kernel<1, T>, s.rows, s.outputs,
          as<T>(op.dy), slices);
  });
  add_slices(queue.stream, s.rows, s.outputs, slices, op.dbias);
}

void run_on_cuda(const LinearBackwardInput& op, CudaQueue& queue) {
  const LinearShape s = op.shape;
  queue.multiply({s.inputs, s.rows, s.outputs, false, false, queue.precision, queue.precision},
                 {op.weight, op.dy, nullptr, nullptr, op.dx});
}

}  // namespace weir::stage::ops
