// SPDX-License-Identifier: Apache-2.0
// One warp per row. Every sum is a fixed tree: lanes in strides, then a butterfly.
#include "worker/stage/ops/cuda/column_sum.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/layernorm.h"

namespace weir::stage::ops {
namespace {

constexpr unsigned kAllLanes = 0xffffffffU;

template <class T>
__device__ T warp_sum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

template <int kWidth, class T>
__global__ void layernorm_forward_kernel(LayerNormShape shape, const T* x, const T* gamma,
                                         const T* beta, T* y, float* statistics) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  if (row >= static_cast<std::size_t>(shape.rows)) return;
  const int channels = shape.channels, first = static_cast<int>(threadIdx.x) * kWidth;
  const T* from = x + row * channels;
  T* to = y + row * channels;
  float sum = 0;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(from + c);
    for (int e = 0; e < kWidth; ++e) sum += wide(in.of[e]);
  }
  const float mean = warp_sum(sum) / channels;
  float squares = 0;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(from + c);
    for (int e = 0; e < kWidth; ++e) {
      const float distance = wide(in.of[e]) - mean;
      squares += distance * distance;
    }
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares) / channels + shape.epsilon);
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(from + c), scale = load<kWidth>(gamma + c);
    const auto shift = load<kWidth>(beta + c);
    Pack<T, kWidth> out;
    for (int e = 0; e < kWidth; ++e) {
      out.of[e] = narrow<T>((wide(in.of[e]) - mean) * rstd * wide(scale.of[e]) + wide(shift.of[e]));
    }
    store(to + c, out);
  }
  if (threadIdx.x == 0) {
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = rstd;
  }
}

template <int kWidth, class T>
__global__ void layernorm_apply_kernel(LayerNormShape shape, const T* x, const float* statistics,
                                       const T* gamma, const T* beta, T* y) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  if (row >= static_cast<std::size_t>(shape.rows)) return;
  const int channels = shape.channels, first = static_cast<int>(threadIdx.x) * kWidth;
  const float mean = statistics[2 * row], rstd = statistics[2 * row + 1];
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + row * channels + c), scale = load<kWidth>(gamma + c);
    const auto shift = load<kWidth>(beta + c);
    Pack<T, kWidth> out;
    for (int e = 0; e < kWidth; ++e) {
      out.of[e] = narrow<T>((wide(in.of[e]) - mean) * rstd * wide(scale.of[e]) + wide(shift.of[e]));
    }
    store(y + row * channels + c, out);
  }
}

// With g = dy gamma and h = (x - mean) rstd:  dx = residual + rstd (g - mean(g) - h mean(g h)).
template <int kWidth, class T>
__global__ void layernorm_input_kernel(LayerNormShape shape, const T* x, const float* statistics,
                                       const T* gamma, const T* dy, const T* residual, T* dx) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  if (row >= static_cast<std::size_t>(shape.rows)) return;
  const int channels = shape.channels, first = static_cast<int>(threadIdx.x) * kWidth;
  const std::size_t begin = row * channels;
  const float mean = statistics[2 * row], rstd = statistics[2 * row + 1];
  float sum_g = 0, sum_gh = 0;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + begin + c), up = load<kWidth>(dy + begin + c);
    const auto scale = load<kWidth>(gamma + c);
    for (int e = 0; e < kWidth; ++e) {
      const float g = wide(up.of[e]) * wide(scale.of[e]);
      sum_g += g;
      sum_gh += g * ((wide(in.of[e]) - mean) * rstd);
    }
  }
  const float mean_g = warp_sum(sum_g) / channels, mean_gh = warp_sum(sum_gh) / channels;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + begin + c), up = load<kWidth>(dy + begin + c);
    const auto scale = load<kWidth>(gamma + c);
    Pack<T, kWidth> past{}, out;
    if (residual != nullptr) past = load<kWidth>(residual + begin + c);
    for (int e = 0; e < kWidth; ++e) {
      const float h = (wide(in.of[e]) - mean) * rstd;
      out.of[e] = narrow<T>(wide(past.of[e]) +
                            rstd * (wide(up.of[e]) * wide(scale.of[e]) - mean_g - h * mean_gh));
    }
    store(dx + begin + c, out);
  }
}

template <class T>
__global__ void layernorm_parameters_kernel(LayerNormShape shape, const T* x,
                                            const float* statistics, const T* dy, float* dgamma,
                                            float* dbeta) {
  const int channels = shape.channels;
  add_terms(shape.rows, channels, dgamma, [=](int row, int column) {
    const std::size_t i = static_cast<std::size_t>(row) * channels + column;
    const std::size_t r = row;
    return wide(dy[i]) * ((wide(x[i]) - statistics[2 * r]) * statistics[2 * r + 1]);
  });
  add_terms(shape.rows, channels, dbeta, [=](int row, int column) {
    return wide(dy[static_cast<std::size_t>(row) * channels + column]);
  });
}

unsigned warp_blocks(int rows) {
  return static_cast<unsigned>((rows + kWarpsPerBlock - 1) / kWarpsPerBlock);
}
template <class T>
constexpr int kWidest = kWidestPack / sizeof(T);
// True if the rows of all arrays begin at places where the widest packs may begin.
template <class T, class... Arrays>
bool in_packs(LayerNormShape shape, const Arrays*... arrays) {
  return shape.channels % kWidest<T> == 0 && aligned(arrays...);
}

}  // namespace

void run_on_cuda(const LayerNormForward& op, CudaQueue& queue) {
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    const T *x = as<T>(op.x), *gamma = as<T>(op.gamma), *beta = as<T>(op.beta);
    T* y = as<T>(op.y);
    const auto kernel = in_packs<T>(op.shape, x, gamma, beta, y)
                            ? layernorm_forward_kernel<kWidest<T>, T>
                            : layernorm_forward_kernel<1, T>;
    start({queue.stream, warp_blocks(op.shape.rows), warps_of_block()}, kernel, op.shape, x, gamma,
          beta, y, op.statistics);
  });
}

void run_on_cuda(const LayerNormApply& op, CudaQueue& queue) {
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    const T *x = as<T>(op.x), *gamma = as<T>(op.gamma), *beta = as<T>(op.beta);
    T* y = as<T>(op.y);
    const auto kernel = in_packs<T>(op.shape, x, gamma, beta, y)
                            ? layernorm_apply_kernel<kWidest<T>, T>
                            : layernorm_apply_kernel<1, T>;
    start({queue.stream, warp_blocks(op.shape.rows), warps_of_block()}, kernel, op.shape, x,
          op.statistics, gamma, beta, y);
  });
}

void run_on_cuda(const LayerNormBackward& op, CudaQueue& queue) {
  const std::size_t sums = column_sum_floats(op.shape.rows, op.shape.channels);
  float* slices_of_gamma = queue.scratch<float>(2 * sums);
  if (slices_of_gamma == nullptr) return;
  float* slices_of_beta = slices_of_gamma + sums;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    const T *x = as<T>(op.x), *gamma = as<T>(op.gamma), *dy = as<T>(op.dy);
    const T* residual = as<T>(op.residual);
    T* dx = as<T>(op.dx);
    start({queue.stream, slice_blocks(op.shape.rows, op.shape.channels), warps_of_block()},
          layernorm_parameters_kernel<T>, op.shape, x, op.statistics, dy, slices_of_gamma,
          slices_of_beta);
    add_slices(queue.stream, op.shape.rows, op.shape.channels, slices_of_gamma, op.dgamma);
    add_slices(queue.stream, op.shape.rows, op.shape.channels, slices_of_beta, op.dbeta);
    const auto kernel = in_packs<T>(op.shape, x, gamma, dy, residual, dx)
                            ? layernorm_input_kernel<kWidest<T>, T>
                            : layernorm_input_kernel<1, T>;
    start({queue.stream, warp_blocks(op.shape.rows), warps_of_block()}, kernel, op.shape, x,
          op.statistics, gamma, dy, residual, dx);
  });
}

}  // namespace weir::stage::ops
