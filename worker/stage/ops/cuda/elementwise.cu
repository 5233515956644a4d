// SPDX-License-Identifier: Apache-2.0
// Grid-stride loops. Activations are narrow and their operations cheap, so a thread handles as many
// of them as one load brings. AdamW and the exact sums are wide enough for one element at a time.
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

constexpr std::size_t kWidestElement = sizeof(float);

// to[i] = f(from[i]...) in packs of kWidth; the rest one element at a time.
template <int kWidth, class F, class To, class... From>
__global__ void map_kernel(std::size_t count, F f, To* to, const From*... from) {
  const std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x, packs = count / kWidth;
  for (std::size_t i = first; i < packs; i += stride) {
    const auto apply = [&](const Pack<From, kWidth>&... in) {
      Pack<To, kWidth> out;
      for (int e = 0; e < kWidth; ++e) out.of[e] = f(in.of[e]...);
      store(to + i * kWidth, out);
    };
    apply(load<kWidth>(from + i * kWidth)...);
  }
  for (std::size_t i = packs * kWidth + first; i < count; i += stride) to[i] = f(from[i]...);
}

template <class F, class To, class... From>
void map(cudaStream_t stream, std::size_t count, F f, To* to, const From*... from) {
  constexpr bool kNarrow = sizeof(To) < kWidestElement && (... && (sizeof(From) < kWidestElement));
  constexpr int kWidth = kWidestPack / (kNarrow ? sizeof(To) : kWidestElement);
  if (count == 0) return;
  if (aligned(to, from...)) {
    start({stream, blocks_for(count / kWidth + 1), kThreads}, map_kernel<kWidth, F, To, From...>,
          count, f, to, from...);
  } else {
    start({stream, blocks_for(count), kThreads}, map_kernel<1, F, To, From...>, count, f, to,
          from...);
  }
}

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
struct GeluBackward {
  __device__ T operator()(T x, T dy) const {
    const float v = wide(x);
    const float t = tanhf(kRoot * (v + kCubic * v * v * v));
    const float slope = kRoot * (1 + 3 * kCubic * v * v);
    return narrow<T>(wide(dy) * (0.5F * (1 + t) + 0.5F * v * (1 - t * t) * slope));
  }
};
template <class T>
struct Relu {
  __device__ T operator()(T x) const { return wide(x) > 0 ? x : T{}; }
};
template <class T>
struct ReluBackward {
  __device__ T operator()(T x, T dy) const { return wide(x) > 0 ? dy : T{}; }
};
template <class T>
struct RoundValue {
  __device__ T operator()(float value) const { return narrow<T>(value); }
};
struct AdamW {
  AdamWStep s;
  const float* gradient;
  float *value, *m, *v;
  __device__ void operator()(std::size_t i) const {
    const float g = s.gradient_scale * gradient[i];
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
    constexpr double kMagic = 384;  // as in exact_sum_host.cpp; the intrinsics are never contracted
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
  map(stream, count, Gelu<T>{}, y, x);
}
template <class T>
void gelu_backward(cudaStream_t stream, std::size_t count, const T* x, const T* dy, T* dx) {
  map(stream, count, GeluBackward<T>{}, dx, x, dy);
}
template <class T>
void relu_forward(cudaStream_t stream, std::size_t count, const T* x, T* y) {
  map(stream, count, Relu<T>{}, y, x);
}
template <class T>
void relu_backward(cudaStream_t stream, std::size_t count, const T* x, const T* dy, T* dx) {
  map(stream, count, ReluBackward<T>{}, dx, x, dy);
}
template <class T>
void round_values(cudaStream_t stream, std::size_t count, const float* from, T* to) {
  map(stream, count, RoundValue<T>{}, to, from);
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
