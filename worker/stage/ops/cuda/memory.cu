// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/cuda/elementwise.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/memory.h"

namespace weir::stage::ops {
namespace {

template <class T>
struct RoundValue {
  __device__ T operator()(float value) const { return narrow<T>(value); }
};

}  // namespace

void run_on_cuda(const Zero& op, CudaQueue& queue) {
  cudaMemsetAsync(op.values, 0, op.count * sizeof(float), queue.stream);
}

void run_on_cuda(const Copy& op, CudaQueue& queue) {
  cudaMemcpyAsync(op.to, op.from, op.bytes, cudaMemcpyDefault, queue.stream);
}

void run_on_cuda(const RoundValues& op, CudaQueue& queue) {
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    map(queue.stream, op.count, RoundValue<T>{}, as<T>(op.to), op.from);
  });
}

}  // namespace weir::stage::ops
