// SPDX-License-Identifier: Apache-2.0
// Ops on elements one by one, as grid-stride loops. Activations are narrow and their operations
// cheap, so map() gives a thread as many of them as one load brings. AdamW and the exact sums are
// wide enough for one element at a time.
#pragma once

#include "worker/stage/ops/cuda/kernel.h"

namespace weir::stage::ops {

constexpr int kElementwiseThreads = 256;
constexpr unsigned kMostBlocks = 8192;

inline unsigned elementwise_blocks(std::size_t count) {
  const std::size_t blocks = (count + kElementwiseThreads - 1) / kElementwiseThreads;
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
void launch_for_each(cudaStream_t stream, std::size_t count, F f) {
  if (count > 0)
    start({stream, elementwise_blocks(count), kElementwiseThreads}, for_each<F>, count, f);
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
    start({stream, elementwise_blocks(count / kWidth + 1), kElementwiseThreads},
          map_kernel<kWidth, F, To, From...>, count, f, to, from...);
  } else {
    start({stream, elementwise_blocks(count), kElementwiseThreads}, map_kernel<1, F, To, From...>,
          count, f, to, from...);
  }
}

}  // namespace weir::stage::ops
