// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/cuda/elementwise.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/relu.h"

namespace weir::stage::ops {
namespace {

template <class T>
struct Relu {
  __device__ T operator()(T x) const { return wide(x) > 0 ? x : T{}; }
};
template <class T>
struct ReluGradient {
  __device__ T operator()(T x, T dy) const { return wide(x) > 0 ? dy : T{}; }
};

}  // namespace

void run_on_cuda(const ReluForward& op, CudaQueue& queue) {
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    map(queue.stream, op.count, Relu<T>{}, as<T>(op.y), as<T>(op.x));
  });
}

void run_on_cuda(const ReluBackward& op, CudaQueue& queue) {
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    map(queue.stream, op.count, ReluGradient<T>{}, as<T>(op.dx), as<T>(op.x), as<T>(op.dy));
  });
}

}  // namespace weir::stage::ops
