// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/cuda/elementwise.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/gelu.h"

namespace weir::stage::ops {
namespace {

constexpr float kRoot = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

// (1 + tanh(u)) / 2 for u = kRoot (x + kCubic x^3), as 1 / (1 + e^-2u): exact for large negative x,
// where 1 + tanh(u) would cancel, and a few instructions where tanhf is a branch and a polynomial.
__device__ inline float half_of_one_plus_tanh(float x) {
  return 1 / (1 + __expf(-2 * kRoot * (x + kCubic * x * x * x)));
}

template <class T>
struct Gelu {
  __device__ T operator()(T x) const {
    const float v = wide(x);
    return narrow<T>(v * half_of_one_plus_tanh(v));
  }
};
template <class T>
struct GeluGradient {
  __device__ T operator()(T x, T dy) const {
    const float v = wide(x);
    const float h = half_of_one_plus_tanh(v);
    const float slope = 2 * kRoot * (1 + 3 * kCubic * v * v);  // of 2u
    return narrow<T>(wide(dy) * (h + v * h * (1 - h) * slope));
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
