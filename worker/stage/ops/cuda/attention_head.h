// SPDX-License-Identifier: Apache-2.0
// Common part of both attention kernels: the position of one head of one sample, and the choice of
// the kernel by shape. A grid has a block row (y) for each sample and head. For .cu files.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include "worker/stage/ops/attention.h"
#include "worker/stage/ops/bf16.h"

namespace weir::stage::ops {

struct Head {
  AttentionShape shape;
  int size, b, h;
  float scale;

  __device__ explicit Head(AttentionShape of)
      : shape(of),
        size(of.channels / of.heads),
        b(static_cast<int>(blockIdx.y) / of.heads),
        h(static_cast<int>(blockIdx.y) % of.heads),
        scale(rsqrtf(static_cast<float>(of.channels / of.heads))) {}
  // part 0, 1, 2 is Q, K, V in (B,T,3C).
  __device__ std::size_t qkv(int t, int part) const {
    const std::size_t row = std::size_t(b) * shape.sequence + t;
    return (row * 3 + part) * shape.channels + std::size_t(h) * size;
  }
  __device__ std::size_t out(int t) const {
    return (std::size_t(b) * shape.sequence + t) * shape.channels + std::size_t(h) * size;
  }
  __device__ std::size_t statistic(int t) const {
    return std::size_t(blockIdx.y) * shape.sequence + t;
  }
  __device__ bool visible(int query, int key) const { return key <= query && key < shape.sequence; }
};

// A kernel must request shared memory above 48 KiB once.
template <class Kernel>
std::size_t with_shared(Kernel kernel, std::size_t bytes) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  return bytes;
}

// attention_tensor.cu: bf16 with tensor cores, for C/H = 16, 32, 64 or 128.
bool tensor_cores_take(AttentionShape shape);
void tensor_forward(cudaStream_t stream, AttentionShape shape, const Bf16* qkv, Bf16* y,
                    float* log_sums);
// Computes dqkv from row_dots = y . dy of each query.
void tensor_gradients(cudaStream_t stream, AttentionShape shape, const Bf16* qkv,
                      const float* log_sums, const float* row_dots, const Bf16* dy, Bf16* dqkv);

}  // namespace weir::stage::ops
