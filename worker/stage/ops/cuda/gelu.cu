// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/cuda/elementwise.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/gelu.h"

namespace weir::stage::ops {
namespace {

constexpr float kRoot = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

template <class T>
struct Gelu {
  __device__ T operator()(T x) const {
    const float v = wide(x);
    return narrow<T>(0.5F * v * (1 + tanhf(kRoot * (v + kCubic * v * v * v))));
  }
};
template <class T>
struct GeluGradient {
  __device__ T operator()(T x, T dy) const {
    const float v = wide(x);
    const float t = tanhf(kRoot * (v + kCubic * v * v * v));
    const float slope = kRoot * (1 + 3 * kCubic * v * v);
    return narrow<T>(wide(dy) * (0.5F * (1 + t) + 0.5F * v * (1 - t * t) * slope));
  }
};

}  // namespace

void run_on_cuda(const GeluForward& op, CudaQueue& queue) {
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    map(queue.stream, op.count, Gelu<T>{}, as<T>(op.y), as<T>(op.x));
  });
}

void run_on_cuda(const GeluBackward& op, CudaQueue& queue) {
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    map(queue.stream, op.count, GeluGradient<T>{}, as<T>(op.dx), as<T>(op.x), as<T>(op.dy));
  });
}

}  // namespace weir::stage::ops
