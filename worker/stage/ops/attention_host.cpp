// SPDX-License-Identifier: Apache-2.0
// For each sample and head, computes blocks of kRows query rows against the keys up to the block's
// last row.
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

// The matrices of one sample and head. Rows are 3C (q, k, v) or C (y) floats apart.
struct Head {
  const float *q, *k, *v;
  Index stride;  // of q, k, v
  int size;      // C/H
  float scale;   // 1 / sqrt(C/H)
};

Head head_of(const AttentionShape& shape, const float* qkv, Index b, Index h) {
  const Index stride = 3 * Index{shape.channels};
  const int size = shape.channels / shape.heads;
  const float* q = qkv + b * shape.sequence * stride + h * size;
  return {q,
          q + shape.channels,
          q + 2 * Index{shape.channels},
          stride,
          size,
          1.0F / std::sqrt(static_cast<float>(size))};
}

// scores (rows, keys) = Q rows first .. first+rows-1 times K^T of keys 0 .. keys-1, not scaled.
void score_block(const Head& head, Index first, int rows, int keys, float* scores, Index length) {
  gemm({rows, keys, head.size}, rows_of(head.q + first * head.stride, head.stride),
       transposed(rows_of(head.k, head.stride)), scores, length, Sum::kReplace);
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
    const int rows = static_cast<int>(std::min(kRows, shape.sequence - first));
    const int keys = static_cast<int>(first) + rows;
    score_block(head, first, rows, keys, scores, length);
    for (Index i = 0; i < rows; ++i) {
      log_sums[first + i] =
          softmax_row(scores + i * length, first + i + 1, row_length(keys), head.scale);
    }
    gemm({rows, head.size, keys}, rows_of(scores, length), rows_of(head.v, head.stride),
         y + first * shape.channels, shape.channels, Sum::kReplace);
  }
}

struct HeadGradient {
  const float *y, *dy;  // C floats apart
  const float* log_sums;
  float *dq, *dk, *dv;  // 3C floats apart; dk and dv are added to
};

// With P the probabilities: dP = dy V^T, dS = P (dP - y.dy), dQ = dS K, dK += dS^T Q, dV += P^T dy.
void backward_head(const AttentionShape& shape, const Head& head, const HeadGradient& gradient,
                   float* p, float* ds) {
  const Index channels = shape.channels;
  const Index length = row_length(shape.sequence);
  for (Index first = 0; first < shape.sequence; first += kRows) {
    const int rows = static_cast<int>(std::min(kRows, shape.sequence - first));
    const int keys = static_cast<int>(first) + rows;
    const float* dy = gradient.dy + first * channels;
    score_block(head, first, rows, keys, p, length);
    gemm({rows, keys, head.size}, rows_of(dy, channels), transposed(rows_of(head.v, head.stride)),
         ds, length, Sum::kReplace);
    for (Index i = 0; i < rows; ++i) {
      const Vec log_sum = broadcast(gradient.log_sums[first + i]);
      const Vec mean =
          broadcast(dot(head.size, gradient.y + (first + i) * channels, dy + i * channels));
      float* p_row = p + i * length;
      const Vec scale = broadcast(head.scale);
      map_row(p_row, first + i + 1, row_length(keys),
              [&](Vec s, Index) { return exp_of(s * scale - log_sum); });
      map_row(ds + i * length, first + i + 1, row_length(keys),
              [&](Vec dp, Index j) { return load(p_row + j) * (dp - mean) * scale; });
    }
    gemm({rows, head.size, keys}, rows_of(ds, length), rows_of(head.k, head.stride),
         gradient.dq + first * head.stride, head.stride, Sum::kReplace);
    gemm({keys, head.size, rows}, transposed(rows_of(ds, length)),
         rows_of(head.q + first * head.stride, head.stride), gradient.dk, head.stride, Sum::kAdd);
    gemm({keys, head.size, rows}, transposed(rows_of(p, length)), rows_of(dy, channels),
         gradient.dv, head.stride, Sum::kAdd);
  }
}

// Calls f(b, h, scratch) for each sample and head. `scratch` is the op's, which the caller's thread
// uses; the others have their own for the time of the op.
template <class F>
void for_heads(Team& team, const AttentionShape& shape, float* scratch, F f) {
  team.run(Index{shape.samples} * shape.heads, 1, [&](Index begin, Index end) {
    std::vector<float> own(begin == 0 ? 0 : attention_scratch_floats(shape));
    float* const of_part = begin == 0 ? scratch : own.data();
    for (Index i = begin; i < end; ++i) f(i / shape.heads, i % shape.heads, of_part);
  });
}

void attention_forward(Team& team, AttentionShape shape, const float* qkv, float* y,
                       float* log_sums, float* scratch) {
  const Index size = shape.channels / shape.heads;
  for_heads(team, shape, scratch, [&](Index b, Index h, float* scores) {
    forward_head(shape, head_of(shape, qkv, b, h),
                 y + b * shape.sequence * shape.channels + h * size,
                 log_sums + (b * shape.heads + h) * shape.sequence, scores);
  });
}

void attention_backward(Team& team, AttentionShape shape, const float* qkv, const float* y,
                        const float* log_sums, const float* dy, float* dqkv, float* scratch) {
  const Index size = shape.channels / shape.heads;
  const Index channels = shape.channels;
  for_heads(team, shape, scratch, [&](Index b, Index h, float* p) {
    const Index at = b * shape.sequence * channels + h * size;
    float* dq = dqkv + b * shape.sequence * 3 * channels + h * size;
    for (Index row = 0; row < shape.sequence; ++row) {
      for (const Index of : {Index{0}, channels, 2 * channels}) {
        std::fill_n(dq + row * 3 * channels + of, size, 0.0F);
      }
    }
    backward_head(shape, head_of(shape, qkv, b, h),
                  {y + at, dy + at, log_sums + (b * shape.heads + h) * shape.sequence, dq,
                   dq + channels, dq + 2 * channels},
                  p, p + kRows * row_length(shape.sequence));
  });
}

}  // namespace

std::size_t attention_scratch_floats(AttentionShape shape) {
  return static_cast<std::size_t>(2 * kRows * row_length(shape.sequence));
}

void run_on_host(const AttentionForward& op, const Host& host) {
  const std::size_t count = product(op.shape.samples, op.shape.sequence, op.shape.channels);
  attention_forward(host.team, op.shape, In(op.qkv, 3 * count, host), Out(op.y, count, host),
                    op.log_sums, op.scratch);
}

void run_on_host(const AttentionBackward& op, const Host& host) {
  const std::size_t count = product(op.shape.samples, op.shape.sequence, op.shape.channels);
  attention_backward(host.team, op.shape, In(op.qkv, 3 * count, host), In(op.y, count, host),
                     op.log_sums, In(op.dy, count, host), Out(op.dqkv, 3 * count, host),
                     op.scratch);
}

}  // namespace weir::stage::ops
