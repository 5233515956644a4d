// SPDX-License-Identifier: Apache-2.0
// For each sample and head, computes blocks of kRows query rows against the keys that some of them
// see.
#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/stage/ops/attention.h"
#include "worker/stage/ops/gemm.h"
#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/vector.h"

namespace weir::stage::ops {
namespace {

constexpr Index kRows = 48;  // a multiple of gemm's tile; 48 rows x 128 keys fill a cache of 32 KiB

Index row_length(Index sequence) {
  return (sequence + kLanes - 1) / kLanes * kLanes;
}

// The matrices of one sample and head.
struct Head {
  const float *q, *k, *v;
  Index stride;    // of q, k, v: floats from row to row
  Index y_stride;  // of y
  int size;        // D
  float scale;     // 1 / sqrt(D)
};

Index heads_per_group(const AttentionShape& shape) {
  return shape.heads / shape.kv_heads;
}

// Channel of the first of q, k, v of a head within a row of qkv.
struct Places {
  Index q, k, v;
};
Places places_of(const AttentionShape& shape, Index h) {
  const Index size = shape.size, group = h / heads_per_group(shape);
  return {h * size, (shape.heads + group) * size, (shape.heads + shape.kv_heads + group) * size};
}

Head head_of(const AttentionShape& shape, const float* qkv, Index b, Index h) {
  const Index stride = qkv_channels(shape);
  const float* row = qkv + b * shape.sequence * stride;
  const Places at = places_of(shape, h);
  return {row + at.q,
          row + at.k,
          row + at.v,
          stride,
          Index{shape.heads} * shape.size,
          shape.size,
          1.0F / std::sqrt(static_cast<float>(shape.size))};
}

// A block of query rows, and the keys from `begin` that they see.
struct Block {
  Index first, begin;
  int rows, keys;
};
Block block_of(const AttentionShape& shape, Index first) {
  const int rows = static_cast<int>(std::min(kRows, shape.sequence - first));
  const Index begin = shape.window == 0 ? 0 : std::max<Index>(0, first - shape.window + 1);
  return {first, begin, rows, static_cast<int>(first + rows - begin)};
}
// Scores of keys before the window of a row become -infinity, so that their probability is 0.
// Returns the number of keys, from the block's first one, up to the row's own.
Index hide_before_window(const AttentionShape& shape, const Block& block, Index i, float* scores) {
  const Index end = block.first + i + 1 - block.begin;
  if (shape.window > 0) {
    std::fill_n(scores, std::max<Index>(0, end - shape.window), -INFINITY);
  }
  return end;
}

// scores (rows, keys) = Q of the block times K^T of its keys, not scaled.
void score_block(const Head& head, const Block& block, float* scores, Index length) {
  gemm({block.rows, block.keys, head.size},
       rows_of(head.q + block.first * head.stride, head.stride),
       transposed(rows_of(head.k + block.begin * head.stride, head.stride)), scores, length,
       Sum::kReplace);
}

// row = f(row) for its first `valid` elements; the rest up to `length`, a multiple of 4, becomes 0.
template <class F>
void map_row(float* row, Index valid, Index length, F f) {
  Index j = 0;
  for (; j + kLanes <= valid; j += kLanes) store(row + j, f(load(row + j), j));
  if (j < valid) {
    const Vec last = f(load(row + j), j);
    for (Index i = 0; i < kLanes; ++i) row[j + i] = j + i < valid ? last[i] : 0.0F;
    j += kLanes;
  }
  std::fill(row + j, row + std::max(j, length), 0.0F);
}

// Computes the softmax of scale x row[0 .. valid-1]. Returns the logarithm of the sum of
// exponentials.
float softmax_row(float* row, Index valid, Index length, float scale) {
  Vec most = broadcast(-INFINITY);
  for (Index j = 0; j < valid; j += kLanes) {
    most = larger(most,
                  valid - j >= kLanes ? load(row + j) : load_some(row + j, valid - j, -INFINITY));
  }
  const float top = largest_lane(most) * scale;
  map_row(row, valid, length,
          [&](Vec s, Index) { return exp_of(s * broadcast(scale) - broadcast(top)); });
  Vec total = broadcast(0.0F);
  for (Index j = 0; j < valid; j += kLanes) total += load(row + j);
  const float sum = sum_of_lanes(total);
  const float inverse = 1.0F / sum;
  for (Index j = 0; j < valid; ++j) row[j] *= inverse;
  // In double, because libm differs in the last bit.
  return top + static_cast<float>(std::log(double{sum}));
}

float dot(Index count, const float* a, const float* b) {
  Vec total = broadcast(0.0F);
  Index i = 0;
  for (; i + kLanes <= count; i += kLanes) total += load(a + i) * load(b + i);
  total += load_some(a + i, count - i, 0.0F) * load_some(b + i, count - i, 0.0F);
  return sum_of_lanes(total);
}

void forward_head(const AttentionShape& shape, const Head& head, float* y, float* log_sums,
                  float* scores) {
  const Index length = row_length(shape.sequence);
  for (Index first = 0; first < shape.sequence; first += kRows) {
    const Block block = block_of(shape, first);
    score_block(head, block, scores, length);
    for (Index i = 0; i < block.rows; ++i) {
      float* row = scores + i * length;
      const Index valid = hide_before_window(shape, block, i, row);
      log_sums[first + i] = softmax_row(row, valid, row_length(block.keys), head.scale);
    }
    gemm({block.rows, head.size, block.keys}, rows_of(scores, length),
         rows_of(head.v + block.begin * head.stride, head.stride), y + first * head.y_stride,
         head.y_stride, Sum::kReplace);
  }
}

struct HeadGradient {
  const float *y, *dy;  // y_stride floats apart
  const float* log_sums;
  float *dq, *dk, *dv;  // stride floats apart; dk and dv are added to
};

// With P the probabilities: dP = dy V^T, dS = P (dP - y.dy), dQ = dS K, dK += dS^T Q, dV += P^T dy.
void backward_head(const AttentionShape& shape, const Head& head, const HeadGradient& gradient,
                   float* p, float* ds) {
  const Index length = row_length(shape.sequence);
  for (Index first = 0; first < shape.sequence; first += kRows) {
    const Block block = block_of(shape, first);
    const Index keys_at = block.begin * head.stride;
    const float* dy = gradient.dy + first * head.y_stride;
    score_block(head, block, p, length);
    gemm({block.rows, block.keys, head.size}, rows_of(dy, head.y_stride),
         transposed(rows_of(head.v + keys_at, head.stride)), ds, length, Sum::kReplace);
    for (Index i = 0; i < block.rows; ++i) {
      const Vec log_sum = broadcast(gradient.log_sums[first + i]);
      const Vec mean = broadcast(
          dot(head.size, gradient.y + (first + i) * head.y_stride, dy + i * head.y_stride));
      float* p_row = p + i * length;
      const Index valid = hide_before_window(shape, block, i, p_row);
      const Vec scale = broadcast(head.scale);
      map_row(p_row, valid, row_length(block.keys),
              [&](Vec s, Index) { return exp_of(s * scale - log_sum); });
      map_row(ds + i * length, valid, row_length(block.keys),
              [&](Vec dp, Index j) { return load(p_row + j) * (dp - mean) * scale; });
    }
    gemm({block.rows, head.size, block.keys}, rows_of(ds, length),
         rows_of(head.k + keys_at, head.stride), gradient.dq + first * head.stride, head.stride,
         Sum::kReplace);
    gemm({block.keys, head.size, block.rows}, transposed(rows_of(ds, length)),
         rows_of(head.q + first * head.stride, head.stride), gradient.dk + keys_at, head.stride,
         Sum::kAdd);
    gemm({block.keys, head.size, block.rows}, transposed(rows_of(p, length)),
         rows_of(dy, head.y_stride), gradient.dv + keys_at, head.stride, Sum::kAdd);
  }
}

// Calls f(b, i, scratch) for each sample and each i < count. `scratch` is the op's, which the
// caller's thread uses; the others have their own for the time of the op.
template <class F>
void for_heads(Team& team, const AttentionShape& shape, Index count, float* scratch, F f) {
  team.run(shape.samples * count, 1, [&](Index begin, Index end) {
    std::vector<float> own(begin == 0 ? 0 : attention_scratch_floats(shape));
    float* const of_part = begin == 0 ? scratch : own.data();
    for (Index i = begin; i < end; ++i) f(i / count, i % count, of_part);
  });
}

void attention_forward(Team& team, AttentionShape shape, const float* qkv, float* y,
                       float* log_sums, float* scratch) {
  for_heads(team, shape, shape.heads, scratch, [&](Index b, Index h, float* scores) {
    const Head head = head_of(shape, qkv, b, h);
    forward_head(shape, head, y + b * shape.sequence * head.y_stride + h * shape.size,
                 log_sums + (b * shape.heads + h) * shape.sequence, scores);
  });
}

// A thread has a head of K and V with all its heads of Q.
void attention_backward(Team& team, AttentionShape shape, const float* qkv, const float* y,
                        const float* log_sums, const float* dy, float* dqkv, float* scratch) {
  const Index each = heads_per_group(shape), stride = qkv_channels(shape);
  for_heads(team, shape, shape.kv_heads, scratch, [&](Index b, Index group, float* p) {
    float* rows = dqkv + b * shape.sequence * stride;
    const Places shared = places_of(shape, group * each);
    for (Index row = 0; row < shape.sequence; ++row) {
      for (const Index of : {shared.k, shared.v}) {
        std::fill_n(rows + row * stride + of, shape.size, 0.0F);
      }
    }
    for (Index h = group * each; h < (group + 1) * each; ++h) {
      const Head head = head_of(shape, qkv, b, h);
      const Index at = b * shape.sequence * head.y_stride + h * shape.size;
      backward_head(shape, head,
                    {y + at, dy + at, log_sums + (b * shape.heads + h) * shape.sequence,
                     rows + places_of(shape, h).q, rows + shared.k, rows + shared.v},
                    p, p + kRows * row_length(shape.sequence));
    }
  });
}

// Numbers of qkv and of y.
struct Counts {
  std::size_t qkv, y;
};
Counts counts_of(const AttentionShape& shape) {
  return {product(shape.samples, shape.sequence, qkv_channels(shape)),
          product(shape.samples, shape.sequence, shape.heads * shape.size)};
}

}  // namespace

std::size_t attention_scratch_floats(AttentionShape shape) {
  return static_cast<std::size_t>(2 * kRows * row_length(shape.sequence));
}

void run_on_host(const AttentionForward& op, const Host& host) {
  const Counts count = counts_of(op.shape);
  attention_forward(host.team, op.shape, In(op.qkv, count.qkv, host), Out(op.y, count.y, host),
                    op.log_sums, op.scratch);
}

void run_on_host(const AttentionBackward& op, const Host& host) {
  const Counts count = counts_of(op.shape);
  attention_backward(host.team, op.shape, In(op.qkv, count.qkv, host), In(op.y, count.y, host),
                     op.log_sums, In(op.dy, count.y, host), Out(op.dqkv, count.qkv, host),
                     op.scratch);
}

}  // namespace weir::stage::ops
