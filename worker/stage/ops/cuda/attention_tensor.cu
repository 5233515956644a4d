// SPDX-License-Identifier: Apache-2.0
// The causal attention of attention.cu in bf16 with tensor cores, after FlashAttention-2 (Dao,
// 2023): tiles of 64 queries and 64 keys, 16 rows of a tile for each of the four warps of a block,
// whose scores, probabilities and sums never leave registers. Scores are float; probabilities and
// their gradients are rounded to bf16 for the next product. While a pair of tiles is read, the next
// one arrives. As in attention.cu, no two blocks add to the same place, so backward computes scores
// twice.
#include <cfloat>
#include <cmath>

#include "worker/stage/ops/cuda/attention_head.h"
#include "worker/stage/ops/cuda/kernel.h"
#include "worker/stage/ops/cuda/tensor_core.h"

namespace weir::stage::ops {
namespace {

constexpr int kTile = 64, kPart = 16, kParts = kTile / kPart;  // one warp per part
constexpr int kWarp = 32, kThreads = kParts * kWarp;
constexpr int kColumns = 8;  // of the sums of one product
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr float kLog2E = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

// Stride of a tile of rows (64, kSize): an odd number of 16 bytes, so that the eight rows of a
// matrix lie in different banks.
template <int kSize>
constexpr int kStride = kSize + 8;
template <int kSize>
constexpr int kTileElements = kTile * kStride<kSize>;
template <int kSize>
constexpr int kSteps = kSize / kPart;  // of a sum over channels; 16 channels of a result
template <int kSize>
constexpr std::size_t kSharedBytes = 4 * kTileElements<kSize> * sizeof(Bf16);
// With 128 channels registers are short in backward: the compiler must not mix the parts of a tile,
// and the gradients of keys read values from a tile of their own.
template <int kSize>
constexpr int kPartsAtOnce = kSize < 128 ? kParts : 1;
template <int kSize>
constexpr bool kHoldsValues = kSize < 128;
template <int kSize>
constexpr std::size_t kKeySharedBytes =
    (kHoldsValues<kSize> ? 4 : 5) * kTileElements<kSize> * sizeof(Bf16);

__device__ int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
__device__ int warp_row() {  // first row of this warp
  return static_cast<int>(threadIdx.x) / kWarp * kPart;
}
// The lane's first row in its warp's 16, and its first column in 8; it has the row 8 below, and the
// next column, too.
__device__ int own_row() {
  return lane_of_warp() / 4;
}
__device__ int own_column() {
  return lane_of_warp() % 4 * 2;
}

// tile[row][c] = from[at(first + row) + c]; rows beyond the sequence are 0. The copies are under
// way.
template <int kSize, class At>
__device__ void load_tile(const Head& head, const Bf16* from, int first, At at, Bf16* tile) {
  constexpr int kPiece = sizeof(uint4) / sizeof(Bf16), kPieces = kSize / kPiece;
  for (int i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
    const int row = i / kPieces, c = i % kPieces * kPiece;
    const bool inside = first + row < head.shape.sequence;
    copy_beside(tile + row * kStride<kSize> + c, inside ? from + at(first + row) + c : from,
                inside);
  }
}

// Where the lane's row of four matrices begins that are the left factor from (row, column) on.
template <int kSize>
__device__ const Bf16* left_at(const Bf16* tile, int row, int column) {
  const int lane = lane_of_warp();
  return tile + (row + lane % 16) * kStride<kSize> + column + lane / 16 * 8;
}
// The same for the right factors of two products. Rows of the tile are their columns: those from
// `row` on, and from row + 8 on.
template <int kSize>
__device__ const Bf16* right_at(const Bf16* tile, int row, int column) {
  const int lane = lane_of_warp();
  return tile + (row + lane / 16 * 8 + lane % 8) * kStride<kSize> + column + lane / 8 % 2 * 8;
}

// The warp's rows of a tile as left factors, in registers. Not kHeld: read each time.
template <int kSize, bool kHeld = true>
struct Rows {
  Pairs held[kHeld ? kSteps<kSize> : 1];
  const Bf16* tile;
  __device__ explicit Rows(const Bf16* from) : tile(from) {
    if constexpr (kHeld) {
#pragma unroll
      for (int i = 0; i < kSteps<kSize>; ++i) {
        held[i] = load_matrices(left_at<kSize>(tile, warp_row(), i * kPart));
      }
    }
  }
  __device__ Pairs part(int i) const {
    if constexpr (kHeld) return held[i];
    return load_matrices(left_at<kSize>(tile, warp_row(), i * kPart));
  }
};

// Sums (16, 16) of the warp: columns 0 to 7 and 8 to 15.
struct Square {
  Sums half[2];
};

// rows (16, kSize) x the 16 rows of the tile from `first` on, transposed.
template <int kSize, bool kHeld>
__device__ Square scores_of(const Rows<kSize, kHeld>& rows, const Bf16* tile, int first) {
  Square square = {};
#pragma unroll
  for (int i = 0; i < kSteps<kSize>; ++i) {
    const Pairs right = load_matrices(right_at<kSize>(tile, first, i * kPart));
    const Pairs left = rows.part(i);
    add_product(square.half[0], left, right.of[0], right.of[1]);
    add_product(square.half[1], left, right.of[2], right.of[3]);
  }
  return square;
}

// Sums (16, kSize) of the warp.
template <int kSize>
struct Result {
  Sums part[2 * kSteps<kSize>];
  __device__ void clear() {
#pragma unroll
    for (Sums& sums : part) sums = {};
  }
  // += left (16, 16) x the 16 rows of the tile from `first` on.
  __device__ void add(const Square& left, const Bf16* tile, int first) {
    // The halves of the square lie in lanes as those of a left factor do.
    const Pairs factor = {{rounded_pair(left.half[0].of[0], left.half[0].of[1]),
                           rounded_pair(left.half[0].of[2], left.half[0].of[3]),
                           rounded_pair(left.half[1].of[0], left.half[1].of[1]),
                           rounded_pair(left.half[1].of[2], left.half[1].of[3])}};
#pragma unroll
    for (int i = 0; i < kSteps<kSize>; ++i) {
      const Pairs right = load_transposed(left_at<kSize>(tile, first, i * kPart));
      add_product(part[2 * i], factor, right.of[0], right.of[1]);
      add_product(part[2 * i + 1], factor, right.of[2], right.of[3]);
    }
  }
  // Rows first + warp_row().. of to[at(t) + c] = upper x the sums of a lane's first row, lower x
  // those of its second one, through the warp's rows of `staging`, a tile that no other warp reads.
  template <class At>
  __device__ void store(const Head& head, int first, At at, float upper, float lower, Bf16* staging,
                        Bf16* to) const {
    Bf16* row = staging + (warp_row() + own_row()) * kStride<kSize> + own_column();
#pragma unroll
    for (int i = 0; i < 2 * kSteps<kSize>; ++i) {
      const float* of = part[i].of;
      *reinterpret_cast<unsigned*>(row + i * kColumns) = rounded_pair(upper * of[0], upper * of[1]);
      *reinterpret_cast<unsigned*>(row + 8 * kStride<kSize> + i * kColumns) =
          rounded_pair(lower * of[2], lower * of[3]);
    }
    __syncwarp();
    constexpr int kPiece = sizeof(uint4) / sizeof(Bf16), kPieces = kSize / kPiece;
    for (int i = lane_of_warp(); i < kPart * kPieces; i += kWarp) {
      const int t = first + warp_row() + i / kPieces, c = i % kPieces * kPiece;
      if (t >= head.shape.sequence) continue;
      *reinterpret_cast<uint4*>(to + at(t) + c) = *reinterpret_cast<const uint4*>(
          staging + (warp_row() + i / kPieces) * kStride<kSize> + c);
    }
    __syncwarp();  // before the warp writes there again
  }
};

// Two pairs of tiles: one that is read, one that arrives.
template <int kSize>
struct Stages {
  Bf16* memory = reinterpret_cast<Bf16*>(dynamic_shared());
  __device__ Bf16* one(int i) const { return memory + i % 2 * 2 * kTileElements<kSize>; }
  __device__ Bf16* other(int i) const { return one(i) + kTileElements<kSize>; }
};
// The copies of all threads are there, and all threads have read what they overwrite next.
__device__ void next_stage() {
  wait_for_copies();
  __syncthreads();
}

__device__ float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ float row_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

// The last queries see most keys: their blocks begin first.
__device__ int query_tile() {
  return static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;
}

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(AttentionShape shape, const Bf16* qkv, Bf16* y, float* log_sums) {
  const Head head(shape);
  const Stages<kSize> stages;
  const int first = query_tile(), query = first + warp_row() + own_row();
  const float scale = head.scale * kLog2E;  // powers of 2 are what the device computes
  const int begin = head.first_keys(first, kTile), tiles = (first - begin) / kTile + 1;
  const auto load = [&](int i) {
    const int keys = begin + i * kTile;
    load_tile<kSize>(head, qkv, keys, [&](int t) { return head.qkv(t, 1); }, stages.one(i));
    load_tile<kSize>(head, qkv, keys, [&](int t) { return head.qkv(t, 2); }, stages.other(i));
  };
  load(0);
  load_tile<kSize>(head, qkv, first, [&](int t) { return head.qkv(t, 0); }, stages.one(1));
  next_stage();
  const Rows<kSize> q(stages.one(1));

  Result<kSize> out;
  out.clear();
  // The largest score and the sum of powers, over the keys so far, of the lane's two rows.
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  for (int i = 0; i < tiles; ++i) {
    next_stage();
    if (i + 1 < tiles) load(i + 1);
    const int keys = begin + i * kTile;
    Square scores[kParts];
#pragma unroll
    for (int j = 0; j < kParts; ++j) scores[j] = scores_of(q, stages.one(i), j * kPart);
    if (keys == first || shape.window > 0) {
#pragma unroll
      for (int e = 0; e < 8 * kParts; ++e) {
        const int key = keys + e / 4 * kColumns + own_column() + e % 2;
        if (!head.visible(query + e % 4 / 2 * 8, key)) {
          scores[e / 8].half[e / 4 % 2].of[e % 4] = -INFINITY;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = -INFINITY;
#pragma unroll
      for (int h = 0; h < 2 * kParts; ++h) {
        const float* of = scores[h / 2].half[h % 2].of;
        most = fmaxf(most, fmaxf(of[2 * r], of[2 * r + 1]));
      }
      const float new_top = fmaxf(top[r], scale * row_max(most));
      const float base = new_top == -INFINITY ? 0 : new_top;  // no key was visible yet
      const float shrink = exp2f(top[r] - base);
      float part = 0;
#pragma unroll
      for (int h = 0; h < 2 * kParts; ++h) {
        float* of = scores[h / 2].half[h % 2].of;
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          of[e] = exp2f(scale * of[e] - base);
          part += of[e];
        }
      }
      sum[r] = sum[r] * shrink + row_sum(part);
      top[r] = new_top;
#pragma unroll
      for (Sums& one : out.part) {
        one.of[2 * r] *= shrink;
        one.of[2 * r + 1] *= shrink;
      }
    }
#pragma unroll
    for (int j = 0; j < kParts; ++j) out.add(scores[j], stages.other(i), j * kPart);
  }
  // The tiles of the stage that nobody reads now.
  out.store(
      head, first, [&](int t) { return head.out(t); }, 1 / sum[0], 1 / sum[1], stages.one(tiles),
      y);
  if (own_column() != 0) return;
  for (int r = 0; r < 2; ++r) {
    const int t = query + 8 * r;
    if (t < shape.sequence) log_sums[head.statistic(t)] = top[r] * kLn2 + logf(sum[r]);
  }
}

// p = e^(scale score - log sum), 0 where `counts` says no; ds = p (dp - row dot). The factor of the
// scale is put to the sums of ds.
__device__ void soften(bool counts, float scale, float log_sum, float row_dot, float& score,
                       float& dp) {
  score = counts ? exp2f(scale * score - log_sum) : 0;
  dp = counts ? score * (dp - row_dot) : 0;
}

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(AttentionShape shape, const Bf16* qkv, const float* log_sums,
                          const float* row_dots, const Bf16* dy, Bf16* dqkv) {
  const Head head(shape);
  const Stages<kSize> stages;
  const int first = query_tile(), query = first + warp_row() + own_row();
  const int begin = head.first_keys(first, kTile), tiles = (first - begin) / kTile + 1;
  const auto load = [&](int i) {
    const int keys = begin + i * kTile;
    load_tile<kSize>(head, qkv, keys, [&](int t) { return head.qkv(t, 1); }, stages.one(i));
    load_tile<kSize>(head, qkv, keys, [&](int t) { return head.qkv(t, 2); }, stages.other(i));
  };
  load(0);
  load_tile<kSize>(head, qkv, first, [&](int t) { return head.qkv(t, 0); }, stages.one(1));
  load_tile<kSize>(head, dy, first, [&](int t) { return head.out(t); }, stages.other(1));
  float log_sum[2], row_dot[2];
  for (int r = 0; r < 2; ++r) {
    const bool inside = query + 8 * r < shape.sequence;
    log_sum[r] = inside ? log_sums[head.statistic(query + 8 * r)] * kLog2E : 0;
    row_dot[r] = inside ? row_dots[head.statistic(query + 8 * r)] : 0;
  }
  next_stage();
  const Rows<kSize> q(stages.one(1)), gradient(stages.other(1));

  Result<kSize> dq;
  dq.clear();
  for (int i = 0; i < tiles; ++i) {
    next_stage();
    if (i + 1 < tiles) load(i + 1);
    const int keys = begin + i * kTile;
    const bool whole = keys != first && shape.window == 0;
#pragma unroll kPartsAtOnce < kSize>
    for (int j = 0; j < kParts; ++j) {
      Square p = scores_of(q, stages.one(i), j * kPart);
      Square ds = scores_of(gradient, stages.other(i), j * kPart);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int r = e % 4 / 2, key = keys + j * kPart + e / 4 * kColumns + own_column() + e % 2;
        soften(whole || head.visible(query + 8 * r, key), head.scale * kLog2E, log_sum[r],
               row_dot[r], p.half[e / 4].of[e % 4], ds.half[e / 4].of[e % 4]);
      }
      dq.add(ds, stages.one(i), j * kPart);
    }
  }
  dq.store(
      head, first, [&](int t) { return head.qkv(t, 0); }, head.scale, head.scale, stages.one(tiles),
      dqkv);
}

template <int kSize>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(AttentionShape shape, const Bf16* qkv, const float* log_sums,
                        const float* row_dots, const Bf16* dy, Bf16* dqkv) {
  const Head head = Head::of_group(shape, 0);
  const Stages<kSize> stages;
  const int first = static_cast<int>(blockIdx.x) * kTile;  // first key
  const int key = first + warp_row() + own_row();
  // The queries that see one of the keys, of one head after the other.
  const int beyond = first + kTile - 1 + shape.window;
  const int end = shape.window == 0 || beyond > shape.sequence ? shape.sequence : beyond;
  const int of_head = (end - first + kTile - 1) / kTile;
  const int tiles = shape.heads / shape.kv_heads * of_head;
  const auto load = [&](int i) {
    const Head sharing = Head::of_group(shape, i / of_head);
    const int queries = first + i % of_head * kTile;
    load_tile<kSize>(
        sharing, qkv, queries, [&](int t) { return sharing.qkv(t, 0); }, stages.one(i));
    load_tile<kSize>(sharing, dy, queries, [&](int t) { return sharing.out(t); }, stages.other(i));
  };
  load(0);
  load_tile<kSize>(head, qkv, first, [&](int t) { return head.qkv(t, 1); }, stages.one(1));
  Bf16* const values =
      kHoldsValues<kSize> ? stages.other(1) : stages.one(0) + 4 * kTileElements<kSize>;
  load_tile<kSize>(head, qkv, first, [&](int t) { return head.qkv(t, 2); }, values);
  next_stage();
  const Rows<kSize> k(stages.one(1));
  const Rows<kSize, kHoldsValues<kSize>> v(values);

  Result<kSize> dk, dv;
  dk.clear();
  dv.clear();
  for (int i = 0; i < tiles; ++i) {
    next_stage();
    if (i + 1 < tiles) load(i + 1);
    const int queries = first + i % of_head * kTile;
    const std::size_t statistics = Head::of_group(shape, i / of_head).statistic(0);
    const bool whole = queries != first && shape.window == 0 && queries + kTile <= shape.sequence;
#pragma unroll kPartsAtOnce < kSize>
    for (int j = 0; j < kParts; ++j) {
      Square p = scores_of(k, stages.one(i), j * kPart);  // key by query
      Square ds = scores_of(v, stages.other(i), j * kPart);
#pragma unroll
      for (int c = 0; c < 4; ++c) {  // the lane's queries
        const int query = queries + j * kPart + c / 2 * kColumns + own_column() + c % 2;
        const bool inside = whole || query < shape.sequence;
        const float log_sum = inside ? log_sums[statistics + query] * kLog2E : 0;
        const float row_dot = inside ? row_dots[statistics + query] : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const bool counts = whole || (inside && head.visible(query, key + 8 * r));
          soften(counts, head.scale * kLog2E, log_sum, row_dot, p.half[c / 2].of[2 * r + c % 2],
                 ds.half[c / 2].of[2 * r + c % 2]);
        }
      }
      dv.add(p, stages.other(i), j * kPart);
      dk.add(ds, stages.one(i), j * kPart);
    }
  }
  dk.store(
      head, first, [&](int t) { return head.qkv(t, 1); }, head.scale, head.scale, stages.one(tiles),
      dqkv);
  dv.store(head, first, [&](int t) { return head.qkv(t, 2); }, 1, 1, stages.other(tiles), dqkv);
}

template <int kSize>
void forward_of(cudaStream_t stream, AttentionShape shape, const Bf16* qkv, Bf16* y,
                float* log_sums) {
  const auto kernel = forward_kernel<kSize>;
  start({stream, attention_grid(shape, kTile, shape.heads), kThreads,
         with_shared(kernel, kSharedBytes<kSize>)},
        kernel, shape, qkv, y, log_sums);
}

template <int kSize>
void gradients_of(cudaStream_t stream, AttentionShape shape, const Bf16* qkv, const float* log_sums,
                  const float* row_dots, const Bf16* dy, Bf16* dqkv) {
  const auto start_on = [&](auto kernel, int heads, std::size_t bytes) {
    start({stream, attention_grid(shape, kTile, heads), kThreads, with_shared(kernel, bytes)},
          kernel, shape, qkv, log_sums, row_dots, dy, dqkv);
  };
  start_on(query_gradient_kernel<kSize>, shape.heads, kSharedBytes<kSize>);
  start_on(key_gradient_kernel<kSize>, shape.kv_heads, kKeySharedBytes<kSize>);
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
