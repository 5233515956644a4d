// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/cuda/block_sum.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/squares.h"

namespace weir::stage::ops {
namespace {

// One block per chunk.
template <class Number>
__global__ void squares_kernel(std::size_t count, const Number* values, double* chunks) {
  static __shared__ double shared[kSquaresLanes];
  const std::size_t begin = std::size_t{blockIdx.x} * kSquaresChunk;
  const std::size_t end = count - begin < kSquaresChunk ? count : begin + kSquaresChunk;
  double own = 0;
#pragma unroll 8
  for (std::size_t i = begin + threadIdx.x; i < end; i += kSquaresLanes) {
    const double value{static_cast<float>(values[i])};
    own += value * value;
  }
  const double sum = block_reduce(own, shared, [](double a, double b) { return a + b; });
  if (threadIdx.x == 0) chunks[blockIdx.x] = sum;
}

}  // namespace

void run_on_cuda(const SumSquares& op, CudaQueue& queue) {
  static_assert(kSumThreads == kSquaresLanes, "the chunks' sums are one more chunk");
  const std::size_t chunks = (op.count + kSquaresChunk - 1) / kSquaresChunk;
  double* sums = queue.scratch<double>(op.count / kSquaresChunk + 1);
  if (sums == nullptr) return;
  if (chunks > 0) {
    with_numbers(op.values, [&](const auto* values) {
      using Number = std::remove_const_t<std::remove_pointer_t<decltype(values)>>;
      start({queue.stream, static_cast<unsigned>(chunks), kSquaresLanes}, squares_kernel<Number>,
            op.count, values, sums);
    });
  }
  start({queue.stream, 1, kSumThreads}, sum_kernel<double>, static_cast<int>(chunks), sums, op.sum);
}

}  // namespace weir::stage::ops
