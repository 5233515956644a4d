// SPDX-License-Identifier: Apache-2.0
// Causal self-attention of H heads: y = softmax(Q K^T / sqrt(C/H), masked above the diagonal) V.
// The probabilities are not kept: backward computes them again from the logarithm of each row's sum
// (Dao et al., "FlashAttention", 2022), in blocks of rows, so memory grows with T, not T^2. On CUDA
// devices C/H is at most 128.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct AttentionShape {
  int samples, sequence, channels, heads;  // B, T, C, H; H divides C
};

std::size_t attention_scratch_floats(AttentionShape shape);  // for one op; hosts only

// qkv (B,T,3C): Q, K, V side by side, with heads side by side within each. y (B,T,C). log_sums
// (B,H,T).
struct AttentionForward {
  AttentionShape shape;
  const Element* qkv;
  Element* y;
  float *log_sums, *scratch;
  auto fields() const { return std::tie(shape, qkv, y, log_sums, scratch); }
};
void run_on_host(const AttentionForward& op, const Host& host);
void run_on_cuda(const AttentionForward& op, CudaQueue& queue);

// Replaces dqkv (B,T,3C).
struct AttentionBackward {
  AttentionShape shape;
  const Element *qkv, *y;
  const float* log_sums;
  const Element* dy;
  Element* dqkv;
  float* scratch;
  auto fields() const { return std::tie(shape, qkv, y, log_sums, dy, dqkv, scratch); }
};
void run_on_host(const AttentionBackward& op, const Host& host);
void run_on_cuda(const AttentionBackward& op, CudaQueue& queue);

}  // namespace weir::stage::ops
