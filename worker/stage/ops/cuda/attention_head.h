// SPDX-License-Identifier: Apache-2.0
// Common part of both attention kernels: the position of one head of one sample, and the choice of
// the kernel by shape. A grid has a block row (y) for each sample and head, that of the gradients
// of K and V for each sample and head of these. For .cu files.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include "worker/stage/ops/attention.h"
#include "worker/stage/ops/bf16.h"

namespace weir::stage::ops {

struct Head {
  AttentionShape shape;
  int size, b, h, group;  // D; the sample; the heads of Q and of K and V
  float scale;

  __device__ Head(AttentionShape of, int sample, int head)
      : shape(of),
        size(of.size),
        b(sample),
        h(head),
        group(head / (of.heads / of.kv_heads)),
        scale(rsqrtf(static_cast<float>(of.size))) {}
  __device__ explicit Head(AttentionShape of)
      : Head(of, static_cast<int>(blockIdx.y) / of.heads, static_cast<int>(blockIdx.y) % of.heads) {
  }
  // Head i of Q of those that share K and V, in a grid with a block row for each sample and group.
  __device__ static Head of_group(AttentionShape of, int i) {
    const int row = static_cast<int>(blockIdx.y);
    return Head(of, row / of.kv_heads, row % of.kv_heads * (of.heads / of.kv_heads) + i);
  }
  // part 0, 1, 2 is Q, K, V in (B,T,(H+2G)D).
  __device__ std::size_t qkv(int t, int part) const {
    const std::size_t row = std::size_t(b) * shape.sequence + t;
    const int place = part == 0 ? h : shape.heads + (part - 1) * shape.kv_heads + group;
    return (row * (shape.heads + 2 * shape.kv_heads) + place) * size;
  }
  __device__ std::size_t out(int t) const {
    return ((std::size_t(b) * shape.sequence + t) * shape.heads + h) * size;
  }
  __device__ std::size_t statistic(int t) const {
    return (std::size_t(b) * shape.heads + h) * shape.sequence + t;
  }
  __device__ bool visible(int query, int key) const {
    return key <= query && key < shape.sequence &&
           (shape.window == 0 || query - key < shape.window);
  }
  // The first tile of keys of which a query from `first` on sees one.
  __device__ int first_keys(int first, int tile) const {
    const int key = shape.window == 0 || first < shape.window ? 0 : first - shape.window + 1;
    return key / tile * tile;
  }
  // True if no query from `queries` on sees a key of the tile at `keys`.
  __device__ bool past_window(int queries, int keys, int tile) const {
    return shape.window > 0 && queries - (keys + tile - 1) >= shape.window;
  }
};

inline dim3 attention_grid(AttentionShape shape, int tile, int heads) {
  return {static_cast<unsigned>((shape.sequence + tile - 1) / tile),
          static_cast<unsigned>(shape.samples * heads)};
}

// Floats from one row of a tile in shared memory to the next, for rows of `size` floats. One more
// than the size, so that the rows that a warp reads at once (8 queries, 4 keys) lie in different
// banks for sizes that are multiples of 32, too.
__host__ __device__ constexpr int stride_of(int size) {
  return size + 1;
}

// A kernel must request shared memory above 48 KiB once.
template <class Kernel>
std::size_t with_shared(Kernel kernel, std::size_t bytes) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  return bytes;
}

// attention_tensor.cu: bf16 with tensor cores, for D = 16, 32, 64 or 128.
bool tensor_cores_take(AttentionShape shape);
void tensor_forward(cudaStream_t stream, AttentionShape shape, const Bf16* qkv, Bf16* y,
                    float* log_sums);
// Computes dqkv from row_dots = y . dy of each query.
void tensor_gradients(cudaStream_t stream, AttentionShape shape, const Bf16* qkv,
                      const float* log_sums, const float* row_dots, const Bf16* dy, Bf16* dqkv);

}  // namespace weir::stage::ops
