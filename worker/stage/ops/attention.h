// SPDX-License-Identifier: Apache-2.0
// Causal self-attention of H heads: y = softmax(Q K^T / sqrt(C/H), masked above the diagonal) V.
// The probabilities are not kept: backward computes them again from the logarithm of each row's sum
// (Dao et al., "FlashAttention", 2022), in blocks of rows, so memory grows with T, not T^2.
#pragma once

#include <cstddef>

namespace weir::stage::ops {

struct AttentionShape {
  int samples, sequence, channels, heads;  // B, T, C, H; H divides C
};

std::size_t attention_scratch_floats(AttentionShape shape);  // for one call of either function

// qkv (B,T,3C): Q, K, V side by side, with heads side by side within each. y (B,T,C). log_sums
// (B,H,T).
void attention_forward(AttentionShape shape, const float* qkv, float* y, float* log_sums,
                       float* scratch);
// Replaces dqkv (B,T,3C).
void attention_backward(AttentionShape shape, const float* qkv, const float* y,
                        const float* log_sums, const float* dy, float* dqkv, float* scratch);

}  // namespace weir::stage::ops
