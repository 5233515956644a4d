// SPDX-License-Identifier: Apache-2.0
// Causal attention in tiles of 32 queries and 32 keys (Dao, "FlashAttention-2", 2023, algorithms 1
// and 2): memory grows with T. For float32 without tensor cores, and for bf16 if
// attention_tensor.cu does not support the head's size. A block of 128 threads works on one tile
// row (forward, dQ) or tile column (dK, dV) of one sample and head, so no two blocks add to the
// same place. Thread 4r + q has row r and every fourth key or channel from q.
#include <cfloat>
#include <type_traits>

#include "worker/stage/ops/cuda/attention_head.h"
#include "worker/stage/ops/cuda/kernel.h"
#include "worker/stage/ops/cuda/queue.h"

namespace weir::stage::ops {
namespace {

constexpr int kTile = 32, kPerRow = 4, kThreads = kTile * kPerRow;
constexpr int kMostSize = 128;                 // D
constexpr int kMostOwn = kMostSize / kPerRow;  // channels of one thread
constexpr int kScoreStride = kTile + 1;        // avoids bank conflicts down a column
constexpr unsigned kAllLanes = 0xffffffffU;

// tile[row][c] = from[at(first + row) + c], with rows of stride_of(size); rows beyond the sequence
// are 0.
template <class T, class At>
__device__ void load_tile(const Head& head, const T* from, int first, At at, float* tile) {
  for (int i = threadIdx.x; i < kTile * head.size; i += kThreads) {
    const int row = i / head.size, c = i % head.size;
    tile[row * stride_of(head.size) + c] =
        first + row < head.shape.sequence ? wide(from[at(first + row) + c]) : 0;
  }
}

template <class T>
__device__ float dot(int size, const T* a, const T* b) {
  float sum = 0;
  for (int c = 0; c < size; ++c) sum += wide(a[c]) * wide(b[c]);
  return sum;
}
__device__ float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ float row_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(AttentionShape shape, const T* qkv, T* y, float* log_sums) {
  float* memory = dynamic_shared();
  const Head head(shape);
  const int stride = stride_of(head.size);
  float *q_tile = memory, *k_tile = q_tile + kTile * stride, *v_tile = k_tile + kTile * stride,
        *scores = v_tile + kTile * stride;
  const int row = threadIdx.x / kPerRow, lane = threadIdx.x % kPerRow;
  const int first = static_cast<int>(blockIdx.x) * kTile, query = first + row;
  load_tile(head, qkv, first, [&](int t) { return head.qkv(t, 0); }, q_tile);

  float acc[kMostOwn] = {};
  float top = -FLT_MAX, sum = 0;
  for (int keys = head.first_keys(first, kTile); keys <= first; keys += kTile) {
    __syncthreads();
    load_tile(head, qkv, keys, [&](int t) { return head.qkv(t, 1); }, k_tile);
    load_tile(head, qkv, keys, [&](int t) { return head.qkv(t, 2); }, v_tile);
    __syncthreads();
    float most = -FLT_MAX;
    float* own = scores + row * kScoreStride;
    for (int j = lane; j < kTile; j += kPerRow) {
      const float s = head.visible(query, keys + j)
                          ? head.scale * dot(head.size, q_tile + row * stride, k_tile + j * stride)
                          : -FLT_MAX;
      own[j] = s;
      most = fmaxf(most, s);
    }
    const float new_top = fmaxf(top, row_max(most));
    const float shrink = expf(top - new_top);
    float part = 0;
    for (int j = lane; j < kTile; j += kPerRow) {
      const float p = head.visible(query, keys + j) ? expf(own[j] - new_top) : 0;
      own[j] = p;
      part += p;
    }
    sum = sum * shrink + row_sum(part);
    top = new_top;
    __syncwarp();  // the four threads of a row are in one warp
#pragma unroll
    for (int i = 0; i < kMostOwn; ++i) {
      const int c = lane + i * kPerRow;
      if (c >= head.size) break;
      float value = acc[i] * shrink;
      for (int j = 0; j < kTile; ++j) value += own[j] * v_tile[j * stride + c];
      acc[i] = value;
    }
  }
  if (query >= shape.sequence) return;
#pragma unroll
  for (int i = 0; i < kMostOwn; ++i) {
    const int c = lane + i * kPerRow;
    if (c < head.size) y[head.out(query) + c] = narrow<T>(acc[i] / sum);
  }
  if (lane == 0) log_sums[head.statistic(query)] = top + logf(sum);
}

// row_dots = y . dy of each query. Neighbouring threads share a row, so that they read neighbouring
// values.
constexpr int kPerDot = 8;
template <class T>
__global__ void row_dots_kernel(AttentionShape shape, const T* y, const T* dy, float* row_dots) {
  const Head head(shape);
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int t = thread / kPerDot, lane = thread % kPerDot;
  float sum = 0;
  if (t < shape.sequence) {
    const T *own = y + head.out(t), *gradient = dy + head.out(t);
    for (int c = lane; c < head.size; c += kPerDot) sum += wide(own[c]) * wide(gradient[c]);
  }
  for (int apart = 1; apart < kPerDot; apart *= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, apart);
  }
  if (t < shape.sequence && lane == 0) row_dots[head.statistic(t)] = sum;
}

// Shared memory of both backward kernels.
struct Tiles {
  const int stride;                // of the tiles
  float *q, *k, *v, *dy, *p, *ds;  // tiles (32, stride), p and ds (32, 33): query by key
  __device__ Tiles(float* memory, int size)
      : stride(stride_of(size)),
        q(memory),
        k(q + kTile * stride),
        v(k + kTile * stride),
        dy(v + kTile * stride),
        p(dy + kTile * stride),
        ds(p + kTile * kScoreStride) {}
};

// p = exp(scale q.k - log sum); ds = p (dy.v - row dot) scale; row = query.
__device__ void probabilities(const Head& head, const Tiles& tiles, int queries, int keys,
                              const float* log_sums, const float* row_dots) {
  const int row = threadIdx.x / kPerRow, lane = threadIdx.x % kPerRow;
  const int query = queries + row;
  const bool inside = query < head.shape.sequence;
  const float log_sum = inside ? log_sums[head.statistic(query)] : 0;
  const float row_dot = inside ? row_dots[head.statistic(query)] : 0;
  for (int j = lane; j < kTile; j += kPerRow) {
    float p = 0, ds = 0;
    if (inside && head.visible(query, keys + j)) {
      const float* k = tiles.k + j * tiles.stride;
      p = expf(head.scale * dot(head.size, tiles.q + row * tiles.stride, k) - log_sum);
      const float dp = dot(head.size, tiles.dy + row * tiles.stride, tiles.v + j * tiles.stride);
      ds = p * (dp - row_dot) * head.scale;
    }
    tiles.p[row * kScoreStride + j] = p;
    tiles.ds[row * kScoreStride + j] = ds;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(AttentionShape shape, const T* qkv, const float* log_sums,
                          const float* row_dots, const T* dy, T* dqkv) {
  float* memory = dynamic_shared();
  const Head head(shape);
  const Tiles tiles(memory, head.size);
  const int row = threadIdx.x / kPerRow, lane = threadIdx.x % kPerRow;
  const int first = static_cast<int>(blockIdx.x) * kTile;
  load_tile(head, qkv, first, [&](int t) { return head.qkv(t, 0); }, tiles.q);
  load_tile(head, dy, first, [&](int t) { return head.out(t); }, tiles.dy);
  float acc[kMostOwn] = {};
  for (int keys = head.first_keys(first, kTile); keys <= first; keys += kTile) {
    __syncthreads();
    load_tile(head, qkv, keys, [&](int t) { return head.qkv(t, 1); }, tiles.k);
    load_tile(head, qkv, keys, [&](int t) { return head.qkv(t, 2); }, tiles.v);
    __syncthreads();
    probabilities(head, tiles, first, keys, log_sums, row_dots);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kMostOwn; ++i) {
      const int c = lane + i * kPerRow;
      if (c >= head.size) break;
      float value = acc[i];
      for (int j = 0; j < kTile; ++j) {
        value += tiles.ds[row * kScoreStride + j] * tiles.k[j * tiles.stride + c];
      }
      acc[i] = value;
    }
  }
  if (first + row >= shape.sequence) return;
#pragma unroll
  for (int i = 0; i < kMostOwn; ++i) {
    const int c = lane + i * kPerRow;
    if (c < head.size) dqkv[head.qkv(first + row, 0) + c] = narrow<T>(acc[i]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(AttentionShape shape, const T* qkv, const float* log_sums,
                        const float* row_dots, const T* dy, T* dqkv) {
  float* memory = dynamic_shared();
  const Head head = Head::of_group(shape, 0);
  const Tiles tiles(memory, head.size);
  const int row = threadIdx.x / kPerRow, lane = threadIdx.x % kPerRow;
  const int first = static_cast<int>(blockIdx.x) * kTile;  // of the keys
  load_tile(head, qkv, first, [&](int t) { return head.qkv(t, 1); }, tiles.k);
  load_tile(head, qkv, first, [&](int t) { return head.qkv(t, 2); }, tiles.v);
  float dk[kMostOwn] = {}, dv[kMostOwn] = {};
  for (int one = 0; one < shape.heads / shape.kv_heads; ++one) {
    const Head sharing = Head::of_group(shape, one);
    for (int queries = first; queries < shape.sequence; queries += kTile) {
      if (head.past_window(queries, first, kTile)) break;
      __syncthreads();
      load_tile(sharing, qkv, queries, [&](int t) { return sharing.qkv(t, 0); }, tiles.q);
      load_tile(sharing, dy, queries, [&](int t) { return sharing.out(t); }, tiles.dy);
      __syncthreads();
      probabilities(sharing, tiles, queries, first, log_sums, row_dots);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kMostOwn; ++i) {
        const int c = lane + i * kPerRow;
        if (c >= head.size) break;
        float key_sum = dk[i], value_sum = dv[i];
        for (int j = 0; j < kTile; ++j) {
          key_sum += tiles.ds[j * kScoreStride + row] * tiles.q[j * tiles.stride + c];
          value_sum += tiles.p[j * kScoreStride + row] * tiles.dy[j * tiles.stride + c];
        }
        dk[i] = key_sum;
        dv[i] = value_sum;
      }
    }
  }
  if (first + row >= shape.sequence) return;
#pragma unroll
  for (int i = 0; i < kMostOwn; ++i) {
    const int c = lane + i * kPerRow;
    if (c >= head.size) break;
    dqkv[head.qkv(first + row, 1) + c] = narrow<T>(dk[i]);
    dqkv[head.qkv(first + row, 2) + c] = narrow<T>(dv[i]);
  }
}

template <class T>
void attention_forward(cudaStream_t stream, const AttentionForward& op) {
  const T* qkv = as<T>(op.qkv);
  T* y = as<T>(op.y);
  if constexpr (std::is_same_v<T, Bf16>) {
    if (tensor_cores_take(op.shape)) {
      return tensor_forward(stream, op.shape, qkv, y, op.log_sums);
    }
  }
  const auto stride = static_cast<std::size_t>(stride_of(op.shape.size));
  const auto kernel = forward_kernel<T>;
  const std::size_t floats = 3 * kTile * stride + kTile * kScoreStride;
  start({stream, attention_grid(op.shape, kTile, op.shape.heads), kThreads,
         with_shared(kernel, floats * sizeof(float))},
        kernel, op.shape, qkv, y, op.log_sums);
}

// row_dots (B,H,T)
template <class T>
void attention_backward(cudaStream_t stream, const AttentionBackward& op, float* row_dots) {
  const AttentionShape shape = op.shape;
  const T *qkv = as<T>(op.qkv), *dy = as<T>(op.dy);
  constexpr unsigned kRows = kThreads / kPerDot;  // of a block
  const dim3 rows((static_cast<unsigned>(shape.sequence) + kRows - 1) / kRows,
                  static_cast<unsigned>(shape.samples * shape.heads));
  start({stream, rows, kThreads}, row_dots_kernel<T>, shape, as<T>(op.y), dy, row_dots);
  if constexpr (std::is_same_v<T, Bf16>) {
    if (tensor_cores_take(shape)) {
      return tensor_gradients(stream, shape, qkv, op.log_sums, row_dots, dy, as<T>(op.dqkv));
    }
  }
  const auto stride = static_cast<std::size_t>(stride_of(shape.size));
  const std::size_t floats = 4 * kTile * stride + 2 * kTile * kScoreStride;
  const auto start_on = [&](auto kernel, int heads) {
    start({stream, attention_grid(shape, kTile, heads), kThreads,
           with_shared(kernel, floats * sizeof(float))},
          kernel, shape, qkv, op.log_sums, row_dots, dy, as<T>(op.dqkv));
  };
  start_on(query_gradient_kernel<T>, shape.heads);
  start_on(key_gradient_kernel<T>, shape.kv_heads);
}

}  // namespace

void run_on_cuda(const AttentionForward& op, CudaQueue& queue) {
  with_element(queue,
               [&](auto element) { attention_forward<decltype(element)>(queue.stream, op); });
}

void run_on_cuda(const AttentionBackward& op, CudaQueue& queue) {
  const AttentionShape s = op.shape;
  float* row_dots =
      queue.scratch<float>(static_cast<std::size_t>(s.samples) * s.heads * s.sequence);
  if (row_dots == nullptr) return;
  with_element(queue, [&](auto element) {
    attention_backward<decltype(element)>(queue.stream, op, row_dots);
  });
}

}  // namespace weir::stage::ops
