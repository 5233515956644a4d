// SPDX-License-Identifier: Apache-2.0
// One thread per element, in a grid-stride loop.
#include "worker/stage/ops/cuda/launch.h"

namespace weir::stage::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kMostBlocks = 8192;

unsigned blocks_for(std::size_t count) {
  const std::size_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

template <class F>
__global__ void for_each(std::size_t count, F f) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    f(i);
  }
}

template <class F>
void launch(cudaStream_t stream, std::size_t count, F f) {
  if (count > 0) for_each<<<blocks_for(count), kThreads, 0, stream>>>(count, f);
}

constexpr float kRoot = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

struct Gelu {
  const float* x;
  float* y;
  __device__ void operator()(std::size_t i) const {
    const float v = x[i];
    y[i] = 0.5F * v * (1 + tanhf(kRoot * (v + kCubic * v * v * v)));
  }
};
struct GeluBackward {
  const float *x, *dy;
  float* dx;
  __device__ void operator()(std::size_t i) const {
    const float v = x[i];
    const float t = tanhf(kRoot * (v + kCubic * v * v * v));
    const float slope = kRoot * (1 + 3 * kCubic * v * v);
    dx[i] = dy[i] * (0.5F * (1 + t) + 0.5F * v * (1 - t * t) * slope);
  }
};
struct Relu {
  const float* x;
  float* y;
  __device__ void operator()(std::size_t i) const { y[i] = x[i] > 0 ? x[i] : 0; }
};
struct ReluBackward {
  const float *x, *dy;
  float* dx;
  __device__ void operator()(std::size_t i) const { dx[i] = x[i] > 0 ? dy[i] : 0; }
};
struct AdamW {
  AdamWStep s;
  const float* gradient;
  float *value, *m, *v;
  __device__ void operator()(std::size_t i) const {
    const float g = gradient[i];
    m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * (g * g);
    const float direction = m[i] / s.correction1 / (sqrtf(v[i] / s.correction2) + s.epsilon);
    value[i] -= s.rate * (direction + s.weight_decay * value[i]);
  }
};
struct AddExactly {
  float* terms;
  double* sums;
  __device__ void operator()(std::size_t i) const {
    constexpr double kMagic = 384;  // as exact_sum_host.cpp; the intrinsics are never contracted
    sums[i] += __dadd_rn(__dadd_rn(terms[i], kMagic), -kMagic);
    terms[i] = 0;
  }
};
struct RoundSums {
  const double* sums;
  float* values;
  __device__ void operator()(std::size_t i) const { values[i] = __double2float_rn(sums[i]); }
};
struct FillRows {
  std::size_t columns;
  const float *bias, *residual;
  float* y;
  __device__ void operator()(std::size_t i) const {
    y[i] = (residual != nullptr ? residual[i] : 0) + (bias != nullptr ? bias[i % columns] : 0);
  }
};

}  // namespace

void gelu_forward(cudaStream_t stream, std::size_t count, const float* x, float* y) {
  launch(stream, count, Gelu{x, y});
}
void gelu_backward(cudaStream_t stream, std::size_t count, const float* x, const float* dy,
                   float* dx) {
  launch(stream, count, GeluBackward{x, dy, dx});
}
void relu_forward(cudaStream_t stream, std::size_t count, const float* x, float* y) {
  launch(stream, count, Relu{x, y});
}
void relu_backward(cudaStream_t stream, std::size_t count, const float* x, const float* dy,
                   float* dx) {
  launch(stream, count, ReluBackward{x, dy, dx});
}
void adamw(cudaStream_t stream, const AdamWStep& step, std::size_t count, const float* gradient,
           float* value, float* m, float* v) {
  launch(stream, count, AdamW{step, gradient, value, m, v});
}
void add_exactly(cudaStream_t stream, std::size_t count, float* terms, double* sums) {
  launch(stream, count, AddExactly{terms, sums});
}
void round_sums(cudaStream_t stream, std::size_t count, const double* sums, float* values) {
  launch(stream, count, RoundSums{sums, values});
}
void fill_rows(cudaStream_t stream, int rows, int columns, const float* bias, const float* residual,
               float* y) {
  const auto width = static_cast<std::size_t>(columns);
  launch(stream, static_cast<std::size_t>(rows) * width, FillRows{width, bias, residual, y});
}

}  // namespace weir::stage::ops::cuda
