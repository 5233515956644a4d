// SPDX-License-Identifier: Apache-2.0
// One thread per element, in a grid-stride loop.
#include "worker/stage/ops/cuda/kernel.h"
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
  if (count > 0) start({stream, blocks_for(count), kThreads}, for_each<F>, count, f);
}

constexpr float kRoot = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

template <class T>
struct Gelu {
  const T* x;
  T* y;
  __device__ void operator()(std::size_t i) const {
    const float v = wide(x[i]);
    y[i] = narrow<T>(0.5F * v * (1 + tanhf(kRoot * (v + kCubic * v * v * v))));
  }
};
template <class T>
struct GeluBackward {
  const T *x, *dy;
  T* dx;
  __device__ void operator()(std::size_t i) const {
    const float v = wide(x[i]);
    const float t = tanhf(kRoot * (v + kCubic * v * v * v));
    const float slope = kRoot * (1 + 3 * kCubic * v * v);
    dx[i] = narrow<T>(wide(dy[i]) * (0.5F * (1 + t) + 0.5F * v * (1 - t * t) * slope));
  }
};
template <class T>
struct Relu {
  const T* x;
  T* y;
  __device__ void operator()(std::size_t i) const { y[i] = wide(x[i]) > 0 ? x[i] : T{}; }
};
template <class T>
struct ReluBackward {
  const T *x, *dy;
  T* dx;
  __device__ void operator()(std::size_t i) const { dx[i] = wide(x[i]) > 0 ? dy[i] : T{}; }
};
template <class T>
struct RoundValues {
  const float* from;
  T* to;
  __device__ void operator()(std::size_t i) const { to[i] = narrow<T>(from[i]); }
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
}  // namespace

template <class T>
void gelu_forward(cudaStream_t stream, std::size_t count, const T* x, T* y) {
  launch(stream, count, Gelu<T>{x, y});
}
template <class T>
void gelu_backward(cudaStream_t stream, std::size_t count, const T* x, const T* dy, T* dx) {
  launch(stream, count, GeluBackward<T>{x, dy, dx});
}
template <class T>
void relu_forward(cudaStream_t stream, std::size_t count, const T* x, T* y) {
  launch(stream, count, Relu<T>{x, y});
}
template <class T>
void relu_backward(cudaStream_t stream, std::size_t count, const T* x, const T* dy, T* dx) {
  launch(stream, count, ReluBackward<T>{x, dy, dx});
}
template <class T>
void round_values(cudaStream_t stream, std::size_t count, const float* from, T* to) {
  launch(stream, count, RoundValues<T>{from, to});
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

template void gelu_forward(cudaStream_t, std::size_t, const float*, float*);
template void gelu_backward(cudaStream_t, std::size_t, const float*, const float*, float*);
template void relu_forward(cudaStream_t, std::size_t, const float*, float*);
template void relu_backward(cudaStream_t, std::size_t, const float*, const float*, float*);
template void round_values(cudaStream_t, std::size_t, const float*, float*);
template void gelu_forward(cudaStream_t, std::size_t, const Bf16*, Bf16*);
template void gelu_backward(cudaStream_t, std::size_t, const Bf16*, const Bf16*, Bf16*);
template void relu_forward(cudaStream_t, std::size_t, const Bf16*, Bf16*);
template void relu_backward(cudaStream_t, std::size_t, const Bf16*, const Bf16*, Bf16*);
template void round_values(cudaStream_t, std::size_t, const float*, Bf16*);

}  // namespace weir::stage::ops::cuda
