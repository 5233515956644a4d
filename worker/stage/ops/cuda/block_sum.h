// SPDX-License-Identifier: Apache-2.0
// Sums, and other reductions, of the values of a block's threads: a fixed tree, the upper half to
// the lower one.
#pragma once

#include "worker/stage/ops/cuda/kernel.h"

namespace weir::stage::ops {

constexpr int kSumThreads = 256;

template <class T, class Combine>
__device__ T block_reduce(T value, T* shared, Combine combine) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
  }
  const T result = shared[0];
  __syncthreads();
  return result;
}

// One block.
template <class T>
__global__ void sum_kernel(int count, const T* values, T* total) {
  static __shared__ T shared[kSumThreads];
  T own = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) own += values[i];
  const T sum = block_reduce(own, shared, [](T a, T b) { return a + b; });
  if (threadIdx.x == 0) *total = sum;
}

}  // namespace weir::stage::ops
