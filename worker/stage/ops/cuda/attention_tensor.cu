// SPDX-License-Identifier: Apache-2.0
// The causal attention of attention.cu in bf16 with tensor cores: tiles of 64 queries and 64 keys,
// products of 16 x 16 x 16 with sums in float. Scores are float; probabilities and their gradients
// are rounded to bf16 for the next product. Each of the four warps of a block has 16 rows of a
// tile, with two lanes per row. As in attention.cu, no two blocks add to the same place.
#include <cfloat>
#include <mma.h>

#include "worker/stage/ops/cuda/attention_head.h"
#include "worker/stage/ops/cuda/kernel.h"

namespace weir::stage::ops {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kTile = 64, kPart = 16, kParts = kTile / kPart;  // one warp per part
constexpr int kWarp = 32, kThreads = kParts * kWarp;
constexpr int kPerRow = 2, kOwn = kTile / kPerRow;  // lanes per row, scores per lane
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr int kScoreStride = kTile + 4;       // floats
constexpr int kRowStride = 2 * kScoreStride;  // Bf16; for rows that replace scores

// Stride of a tile of rows (64, kSize). Shifted rows avoid bank conflicts; with 128 they would not
// fit into the 99 KiB of an L4.
template <int kSize>
constexpr int kStride = kSize < 128 ? kSize + 8 : kSize;
template <int kSize>
constexpr int kTileElements = kTile * kStride<kSize>;
template <int kSize>
constexpr int kOutStride = kSize + 4;  // floats
constexpr int kScores = kTile * kScoreStride;

using Sum = wmma::fragment<wmma::accumulator, kPart, kPart, kPart, float>;
template <class Layout>
using Left = wmma::fragment<wmma::matrix_a, kPart, kPart, kPart, __nv_bfloat16, Layout>;
template <class Layout>
using Right = wmma::fragment<wmma::matrix_b, kPart, kPart, kPart, __nv_bfloat16, Layout>;

__device__ const __nv_bfloat16* native(const Bf16* values) {
  return reinterpret_cast<const __nv_bfloat16*>(values);
}
__device__ int warp_row() {  // first row of this warp
  return static_cast<int>(threadIdx.x) / kWarp * kPart;
}
__device__ int own_row() {
  return warp_row() + static_cast<int>(threadIdx.x) % kWarp / kPerRow;
}
__device__ int own_lane() {
  return static_cast<int>(threadIdx.x) % kPerRow;
}

// tile[row][c] = from[at(first + row) + c]; rows beyond the sequence are 0. Copies 16 bytes at a
// time.
template <int kSize, class At>
__device__ void load_tile(const Head& head, const Bf16* from, int first, At at, Bf16* tile) {
  constexpr int kPiece = sizeof(uint4) / sizeof(Bf16), kPieces = kSize / kPiece;
  for (int i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
    const int row = i / kPieces, c = i % kPieces * kPiece;
    uint4 piece = {0, 0, 0, 0};
    if (first + row < head.shape.sequence) {
      piece = *reinterpret_cast<const uint4*>(from + at(first + row) + c);
    }
    *reinterpret_cast<uint4*>(tile + row * kStride<kSize> + c) = piece;
  }
}

// The warp's rows of scores (64, 64) = x (64, kSize) y (64, kSize)^T.
template <int kSize>
__device__ void multiply_rows(const Bf16* x, const Bf16* y, float* scores) {
  constexpr int stride = kStride<kSize>;
  for (int j = 0; j < kParts; ++j) {
    Sum sum;
    wmma::fill_fragment(sum, 0.0F);
#pragma unroll
    for (int d = 0; d < kSize; d += kPart) {
      Left<wmma::row_major> left;
      Right<wmma::col_major> right;
      wmma::load_matrix_sync(left, native(x + warp_row() * stride + d), stride);
      wmma::load_matrix_sync(right, native(y + j * kPart * stride + d), stride);
      wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(scores + warp_row() * kScoreStride + j * kPart, sum, kScoreStride,
                            wmma::mem_row_major);
  }
}

// sums (16, kSize) += left (16, 64) rows (64, kSize). The part of `left` at k is at left + k *
// step.
template <int kSize, class Layout>
__device__ void add_product(const Bf16* left_part, int step, const Bf16* rows, Sum* sums) {
  constexpr int stride = kStride<kSize>;
  for (int k = 0; k < kTile; k += kPart) {
    Left<Layout> left;
    wmma::load_matrix_sync(left, native(left_part + k * step), kRowStride);
#pragma unroll
    for (int d = 0; d < kSize / kPart; ++d) {
      Right<wmma::row_major> right;
      wmma::load_matrix_sync(right, native(rows + k * stride + d * kPart), stride);
      wmma::mma_sync(sums[d], left, right, sums[d]);
    }
  }
}

__device__ Bf16* rows_over(float* scores) {
  return reinterpret_cast<Bf16*>(scores);
}

// Softmax state of a row over the keys so far.
struct Running {
  float top = -FLT_MAX, sum = 0;
};

// Replaces the lane's scores of its row by probabilities (times the sum, relative to `top`).
// Returns the factor by which earlier results shrink.
__device__ float soften(const Head& head, int query, int keys, float* scores, Running& running) {
  float* row = scores + own_row() * kScoreStride;
  float own[kOwn];
  float most = -FLT_MAX;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int j = i * kPerRow + own_lane();
    own[i] = head.visible(query, keys + j) ? head.scale * row[j] : -FLT_MAX;
    most = fmaxf(most, own[i]);
  }
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
  const float top = fmaxf(running.top, most);
  const float shrink = expf(running.top - top);
  __syncwarp();  // both lanes have read the row
  Bf16* to = rows_over(row);
  float part = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int j = i * kPerRow + own_lane();
    const float p = head.visible(query, keys + j) ? expf(own[i] - top) : 0;
    to[j] = narrow<Bf16>(p);
    part += p;
  }
  part += __shfl_xor_sync(kAllLanes, part, 1);
  running.sum = running.sum * shrink + part;
  running.top = top;
  return shrink;
}

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(AttentionShape shape, const Bf16* qkv, Bf16* y, float* log_sums) {
  constexpr int out_stride = kOutStride<kSize>;
  const Head head(shape);
  auto* q = reinterpret_cast<Bf16*>(dynamic_shared());
  Bf16 *k = q + kTileElements<kSize>, *v = k + kTileElements<kSize>;
  auto* scores = reinterpret_cast<float*>(v + kTileElements<kSize>);
  float* out = scores + kScores;
  const int first = static_cast<int>(blockIdx.x) * kTile, query = first + own_row();
  float* own_out = out + own_row() * out_stride;
  load_tile<kSize>(head, qkv, first, [&](int t) { return head.qkv(t, 0); }, q);
  for (int c = own_lane(); c < kSize; c += kPerRow) own_out[c] = 0;

  Running running;
  for (int keys = head.first_keys(first, kTile); keys <= first; keys += kTile) {
    __syncthreads();
    load_tile<kSize>(head, qkv, keys, [&](int t) { return head.qkv(t, 1); }, k);
    load_tile<kSize>(head, qkv, keys, [&](int t) { return head.qkv(t, 2); }, v);
    __syncthreads();
    multiply_rows<kSize>(q, k, scores);
    __syncwarp();
    const float shrink = soften(head, query, keys, scores, running);
    for (int c = own_lane(); c < kSize; c += kPerRow) own_out[c] *= shrink;
    __syncwarp();
    Sum sums[kSize / kPart];
    float* warp_out = out + warp_row() * out_stride;
#pragma unroll
    for (int d = 0; d < kSize / kPart; ++d) {
      wmma::load_matrix_sync(sums[d], warp_out + d * kPart, out_stride, wmma::mem_row_major);
    }
    add_product<kSize, wmma::row_major>(rows_over(scores) + warp_row() * kRowStride, 1, v, sums);
#pragma unroll
    for (int d = 0; d < kSize / kPart; ++d) {
      wmma::store_matrix_sync(warp_out + d * kPart, sums[d], out_stride, wmma::mem_row_major);
    }
    __syncwarp();
  }
  if (query >= shape.sequence) return;
  for (int c = own_lane(); c < kSize; c += kPerRow) {
    y[head.out(query) + c] = narrow<Bf16>(own_out[c] / running.sum);
  }
  if (own_lane() == 0) log_sums[head.statistic(query)] = running.top + logf(running.sum);
}

// Shared memory of both backward kernels.
template <int kSize>
struct Tiles {
  Bf16 *q, *k, *v, *dy;
  float *scores, *dp;  // adjacent
  __device__ explicit Tiles(float* memory)
      : q(reinterpret_cast<Bf16*>(memory)),
        k(q + kTileElements<kSize>),
        v(k + kTileElements<kSize>),
        dy(v + kTileElements<kSize>),
        scores(reinterpret_cast<float*>(dy + kTileElements<kSize>)),
        dp(scores + kScores) {}
};

// The warp's rows of p and ds, query by key, which replace scores and dp:
// p = exp(scale q.k - log sum); ds = p (dy.v - row dot) scale.
template <int kSize>
__device__ void probabilities(const Head& head, const Tiles<kSize>& tiles, int queries, int keys,
                              const float* log_sums, const float* row_dots) {
  multiply_rows<kSize>(tiles.q, tiles.k, tiles.scores);
  multiply_rows<kSize>(tiles.dy, tiles.v, tiles.dp);
  __syncwarp();
  const int query = queries + own_row();
  const bool inside = query < head.shape.sequence;
  const float log_sum = inside ? log_sums[head.statistic(query)] : 0;
  const float row_dot = inside ? row_dots[head.statistic(query)] : 0;
  float* score_row = tiles.scores + own_row() * kScoreStride;
  float* dp_row = tiles.dp + own_row() * kScoreStride;
  float p[kOwn], ds[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int j = i * kPerRow + own_lane();
    const bool counts = inside && head.visible(query, keys + j);
    p[i] = counts ? expf(head.scale * score_row[j] - log_sum) : 0;
    ds[i] = counts ? p[i] * (dp_row[j] - row_dot) * head.scale : 0;
  }
  __syncwarp();  // both lanes have read the rows
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int j = i * kPerRow + own_lane();
    rows_over(score_row)[j] = narrow<Bf16>(p[i]);
    rows_over(dp_row)[j] = narrow<Bf16>(ds[i]);
  }
}

// Rows first.. of to[at(t) + c] = the warps' sums, through `staging` (64, kSize).
template <int kSize, class At>
__device__ void store_sums(const Head& head, const Sum* sums, int first, At at, float* staging,
                           Bf16* to) {
  constexpr int stride = kOutStride<kSize>;
#pragma unroll
  for (int d = 0; d < kSize / kPart; ++d) {
    wmma::store_matrix_sync(staging + warp_row() * stride + d * kPart, sums[d], stride,
                            wmma::mem_row_major);
  }
  __syncwarp();
  const int t = first + own_row();
  if (t < head.shape.sequence) {
    for (int c = own_lane(); c < kSize; c += kPerRow) {
      to[at(t) + c] = narrow<Bf16>(staging[own_row() * stride + c]);
    }
  }
  __syncwarp();  // before the next sums use the same place
}

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(AttentionShape shape, const Bf16* qkv, const float* log_sums,
                          const float* row_dots, const Bf16* dy, Bf16* dqkv) {
  const Head head(shape);
  const Tiles<kSize> tiles(dynamic_shared());
  const int first = static_cast<int>(blockIdx.x) * kTile;
  load_tile<kSize>(head, qkv, first, [&](int t) { return head.qkv(t, 0); }, tiles.q);
  load_tile<kSize>(head, dy, first, [&](int t) { return head.out(t); }, tiles.dy);
  Sum dq[kSize / kPart];
#pragma unroll
  for (int d = 0; d < kSize / kPart; ++d) wmma::fill_fragment(dq[d], 0.0F);
  for (int keys = head.first_keys(first, kTile); keys <= first; keys += kTile) {
    __syncthreads();
    load_tile<kSize>(head, qkv, keys, [&](int t) { return head.qkv(t, 1); }, tiles.k);
    load_tile<kSize>(head, qkv, keys, [&](int t) { return head.qkv(t, 2); }, tiles.v);
    __syncthreads();
    probabilities(head, tiles, first, keys, log_sums, row_dots);
    __syncwarp();
    add_product<kSize, wmma::row_major>(rows_over(tiles.dp) + warp_row() * kRowStride, 1, tiles.k,
                                        dq);
  }
  __syncthreads();  // all warps have finished with the rows that the staging covers
  store_sums<kSize>(head, dq, first, [&](int t) { return head.qkv(t, 0); }, tiles.scores, dqkv);
}

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(AttentionShape shape, const Bf16* qkv, const float* log_sums,
                        const float* row_dots, const Bf16* dy, Bf16* dqkv) {
  const Head head = Head::of_group(shape, 0);
  const Tiles<kSize> tiles(dynamic_shared());
  const int first = static_cast<int>(blockIdx.x) * kTile;  // first key
  load_tile<kSize>(head, qkv, first, [&](int t) { return head.qkv(t, 1); }, tiles.k);
  load_tile<kSize>(head, qkv, first, [&](int t) { return head.qkv(t, 2); }, tiles.v);
  Sum dk[kSize / kPart], dv[kSize / kPart];
#pragma unroll
  for (int d = 0; d < kSize / kPart; ++d) {
    wmma::fill_fragment(dk[d], 0.0F);
    wmma::fill_fragment(dv[d], 0.0F);
  }
  for (int one = 0; one < shape.heads / shape.kv_heads; ++one) {
    const Head sharing = Head::of_group(shape, one);
    for (int queries = first; queries < shape.sequence; queries += kTile) {
      if (head.past_window(queries, first, kTile)) break;
      __syncthreads();
      load_tile<kSize>(sharing, qkv, queries, [&](int t) { return sharing.qkv(t, 0); }, tiles.q);
      load_tile<kSize>(sharing, dy, queries, [&](int t) { return sharing.out(t); }, tiles.dy);
      __syncthreads();
      probabilities(sharing, tiles, queries, first, log_sums, row_dots);
      __syncthreads();  // now a warp has keys: the columns of p and ds
      add_product<kSize, wmma::col_major>(rows_over(tiles.scores) + warp_row(), kRowStride,
                                          tiles.dy, dv);
      add_product<kSize, wmma::col_major>(rows_over(tiles.dp) + warp_row(), kRowStride, tiles.q,
                                          dk);
    }
  }
  __syncthreads();  // all warps have finished with the rows that the staging covers
  store_sums<kSize>(head, dk, first, [&](int t) { return head.qkv(t, 1); }, tiles.scores, dqkv);
  store_sums<kSize>(head, dv, first, [&](int t) { return head.qkv(t, 2); }, tiles.scores, dqkv);
}

template <int kSize>
void forward_of(cudaStream_t stream, AttentionShape shape, const Bf16* qkv, Bf16* y,
                float* log_sums) {
  const auto kernel = forward_kernel<kSize>;
  constexpr std::size_t bytes =
      3 * kTileElements<kSize> * sizeof(Bf16) + (kScores + kTile * kOutStride<kSize>)*sizeof(float);
  start({stream, attention_grid(shape, kTile, shape.heads), kThreads, with_shared(kernel, bytes)},
        kernel, shape, qkv, y, log_sums);
}

template <int kSize>
void gradients_of(cudaStream_t stream, AttentionShape shape, const Bf16* qkv, const float* log_sums,
                  const float* row_dots, const Bf16* dy, Bf16* dqkv) {
  constexpr std::size_t bytes =
      4 * kTileElements<kSize> * sizeof(Bf16) + 2 * kScores * sizeof(float);
  static_assert(kTile * kOutStride<kSize> <= 2 * kScores, "staging fits into scores and dp");
  const auto start_on = [&](auto kernel, int heads) {
    start({stream, attention_grid(shape, kTile, heads), kThreads, with_shared(kernel, bytes)},
          kernel, shape, qkv, log_sums, row_dots, dy, dqkv);
  };
  start_on(query_gradient_kernel<kSize>, shape.heads);
  start_on(key_gradient_kernel<kSize>, shape.kv_heads);
}

}  // namespace

bool tensor_cores_take(AttentionShape shape) {
  const int size = shape.size;
  return size == 16 || size == 32 || size == 64 || size == 128;
}

void tensor_forward(cudaStream_t stream, AttentionShape shape, const Bf16* qkv, Bf16* y,
                    float* log_sums) {
  switch (shape.size) {
    case 16:
      return forward_of<16>(stream, shape, qkv, y, log_sums);
    case 32:
      return forward_of<32>(stream, shape, qkv, y, log_sums);
    case 64:
      return forward_of<64>(stream, shape, qkv, y, log_sums);
    case 128:
      return forward_of<128>(stream, shape, qkv, y, log_sums);
  }
}

void tensor_gradients(cudaStream_t stream, AttentionShape shape, const Bf16* qkv,
                      const float* log_sums, const float* row_dots, const Bf16* dy, Bf16* dqkv) {
  switch (shape.size) {
    case 16:
      return gradients_of<16>(stream, shape, qkv, log_sums, row_dots, dy, dqkv);
    case 32:
      return gradients_of<32>(stream, shape, qkv, log_sums, row_dots, dy, dqkv);
    case 64:
      return gradients_of<64>(stream, shape, qkv, log_sums, row_dots, dy, dqkv);
    case 128:
      return gradients_of<128>(stream, shape, qkv, log_sums, row_dots, dy, dqkv);
  }
}

}  // namespace weir::stage::ops
