// SPDX-License-Identifier: Apache-2.0
// Causal self-attention of H heads of D channels: y = softmax(Q K^T / sqrt(D), masked above the
// diagonal) V. The K and V of one of G heads serve H/G neighbouring heads of Q (Ainslie et al.,
// "GQA", 2023). With a window of W a token sees itself and the W - 1 tokens before it.
// The probabilities are not kept: backward computes them again from the logarithm of each row's sum
// (Dao et al., "FlashAttention", 2022), in blocks of rows, so memory grows with T, not T^2. On CUDA
// devices D is at most 128.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct AttentionShape {
  int samples, sequence;      // B, T
  int heads, kv_heads, size;  // H, G, D; G divides H
  int window = 0;             // W; 0 = all tokens before
};
// Channels of a token in qkv: (H + 2 G) D.
inline int qkv_channels(AttentionShape shape) {
  return (shape.heads + 2 * shape.kv_heads) * shape.size;
}

std::size_t attention_scratch_floats(AttentionShape shape);  // for one op; hosts only

// qkv (B,T,(H+2G)D): Q, K, V side by side, with heads side by side within each. y (B,T,HD).
// log_sums (B,H,T).
struct AttentionForward {
  AttentionShape shape;
  const Element* qkv;
  Element* y;
  float *log_sums, *scratch;
  auto fields() const { return std::tie(shape, qkv, y, log_sums, scratch); }
};
void run_on_host(const AttentionForward& op, const Host& host);
void run_on_cuda(const AttentionForward& op, CudaQueue& queue);

// Replaces dqkv (B,T,(H+2G)D). The gradients of K and V are sums over their heads of Q, in the
// order of heads.
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
