// SPDX-License-Identifier: Apache-2.0
// One warp per vector. Every sum is a fixed tree: lanes in strides, then a butterfly.
#include "worker/stage/ops/cuda/column_sum.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/rms_norm.h"

namespace weir::stage::ops {
namespace {

constexpr unsigned kAllLanes = 0xffffffffU;

__device__ float warp_sum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

__device__ std::size_t place_of(const RmsNormShape& shape, std::size_t vector) {
  return vector / shape.heads * shape.stride + vector % shape.heads * shape.channels;
}
__device__ std::size_t own_vector() {
  return std::size_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
}
__device__ bool is_inside(const RmsNormShape& shape, std::size_t vector) {
  return vector < std::size_t(shape.rows) * shape.heads;
}

template <int kWidth, class T>
__device__ void apply(int channels, const T* x, float rstd, const T* gamma, T* y) {
  for (int c = static_cast<int>(threadIdx.x) * kWidth; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + c), scale = load<kWidth>(gamma + c);
    Pack<T, kWidth> out;
    for (int e = 0; e < kWidth; ++e) {
      out.of[e] = narrow<T>(wide(in.of[e]) * rstd * wide(scale.of[e]));
    }
    store(y + c, out);
  }
}

template <int kWidth, class T>
__global__ void rms_norm_forward_kernel(RmsNormShape shape, const T* x, const T* gamma, T* y,
                                        float* rstd) {
  const std::size_t vector = own_vector();
  if (!is_inside(shape, vector)) return;
  const std::size_t at = place_of(shape, vector);
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x) * kWidth; c < shape.channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + at + c);
    for (int e = 0; e < kWidth; ++e) squares += wide(in.of[e]) * wide(in.of[e]);
  }
  const float own = 1.0F / sqrtf(warp_sum(squares) / shape.channels + shape.epsilon);
  apply<kWidth>(shape.channels, x + at, own, gamma, y + at);
  if (threadIdx.x == 0) rstd[vector] = own;
}

template <int kWidth, class T>
__global__ void rms_norm_apply_kernel(RmsNormShape shape, const T* x, const float* rstd,
                                      const T* gamma, T* y) {
  const std::size_t vector = own_vector();
  if (!is_inside(shape, vector)) return;
  const std::size_t at = place_of(shape, vector);
  apply<kWidth>(shape.channels, x + at, rstd[vector], gamma, y + at);
}

// With g = dy gamma and h = x rstd:  dx = residual + rstd (g - h mean(g h)). A lane reads the
// elements that it writes before it writes them, so dx may be dy.
template <int kWidth, class T>
__global__ void rms_norm_input_kernel(RmsNormShape shape, const T* x, const float* rstd,
                                      const T* gamma, const T* dy, const T* residual, T* dx) {
  const std::size_t vector = own_vector();
  if (!is_inside(shape, vector)) return;
  const std::size_t at = place_of(shape, vector);
  const int channels = shape.channels, first = static_cast<int>(threadIdx.x) * kWidth;
  const float own = rstd[vector];
  float sum = 0;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + at + c), up = load<kWidth>(dy + at + c);
    const auto scale = load<kWidth>(gamma + c);
    for (int e = 0; e < kWidth; ++e) {
      sum += wide(up.of[e]) * wide(scale.of[e]) * (wide(in.of[e]) * own);
    }
  }
  const float mean = warp_sum(sum) / channels;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + at + c), up = load<kWidth>(dy + at + c);
    const auto scale = load<kWidth>(gamma + c);
    Pack<T, kWidth> past{}, out;
    if (residual != nullptr) past = load<kWidth>(residual + at + c);
    for (int e = 0; e < kWidth; ++e) {
      out.of[e] = narrow<T>(wide(past.of[e]) + own * (wide(up.of[e]) * wide(scale.of[e]) -
                                                      wide(in.of[e]) * own * mean));
    }
    store(dx + at + c, out);
  }
}

template <class T>
__global__ void rms_norm_parameters_kernel(RmsNormShape shape, const T* x, const float* rstd,
                                           const T* dy, float* dgamma) {
  add_terms(shape.rows * shape.heads, shape.channels, dgamma, [=](int vector, int column) {
    const std::size_t i = place_of(shape, vector) + column;
    return wide(dy[i]) * (wide(x[i]) * rstd[vector]);
  });
}

unsigned warp_blocks(const RmsNormShape& shape) {
  return static_cast<unsigned>((shape.rows * shape.heads + kWarpsPerBlock - 1) / kWarpsPerBlock);
}
template <class T>
constexpr int kWidest = kWidestPack / sizeof(T);
// True if the vectors of all arrays begin at places where the widest packs may begin.
template <class T, class... Arrays>
bool in_packs(const RmsNormShape& shape, const Arrays*... arrays) {
  return shape.channels % kWidest<T> == 0 && shape.stride % kWidest<T> == 0 && aligned(arrays...);
}

}  // namespace

void run_on_cuda(const RmsNormForward& op, CudaQueue& queue) {
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    const T *x = as<T>(op.x), *gamma = as<T>(op.gamma);
    T* y = as<T>(op.y);
    const auto kernel = in_packs<T>(op.shape, x, gamma, y) ? rms_norm_forward_kernel<kWidest<T>, T>
                                                           : rms_norm_forward_kernel<1, T>;
    start({queue.stream, warp_blocks(op.shape), warps_of_block()}, kernel, op.shape, x, gamma, y,
          op.rstd);
  });
}

void run_on_cuda(const RmsNormApply& op, CudaQueue& queue) {
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    const T *x = as<T>(op.x), *gamma = as<T>(op.gamma);
    T* y = as<T>(op.y);
    const auto kernel = in_packs<T>(op.shape, x, gamma, y) ? rms_norm_apply_kernel<kWidest<T>, T>
                                                           : rms_norm_apply_kernel<1, T>;
    start({queue.stream, warp_blocks(op.shape), warps_of_block()}, kernel, op.shape, x, op.rstd,
          gamma, y);
  });
}

void run_on_cuda(const RmsNormBackward& op, CudaQueue& queue) {
  const int vectors = op.shape.rows * op.shape.heads, channels = op.shape.channels;
  float* slices = queue.scratch<float>(column_sum_floats(vectors, channels));
  if (slices == nullptr) return;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    const T *x = as<T>(op.x), *gamma = as<T>(op.gamma), *dy = as<T>(op.dy);
    const T* residual = as<T>(op.residual);
    T* dx = as<T>(op.dx);
    start({queue.stream, slice_blocks(vectors, channels), warps_of_block()},
          rms_norm_parameters_kernel<T>, op.shape, x, op.rstd, dy, slices);
    add_slices(queue.stream, vectors, channels, slices, op.dgamma);
    const auto kernel = in_packs<T>(op.shape, x, gamma, dy, residual, dx)
                            ? rms_norm_input_kernel<kWidest<T>, T>
                            : rms_norm_input_kernel<1, T>;
    start({queue.stream, warp_blocks(op.shape), warps_of_block()}, kernel, op.shape, x, op.rstd,
          gamma, dy, residual, dx);
  });
}

}  // namespace weir::stage::ops
