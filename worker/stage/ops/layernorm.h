// SPDX-License-Identifier: Apache-2.0
// y (R,C) = (x - mean) rstd gamma + beta per row, epsilon 1e-5 (GPT-2's). Statistics (R,2): mean,
// rstd.
#pragma once

namespace weir::stage::ops {

struct LayerNormShape {
  int rows, channels;
};

void layernorm_forward(LayerNormShape shape, const float* x, const float* gamma, const float* beta,
                       float* y, float* statistics);
// Computes y again from x and the statistics, which is cheaper than keeping it.
void layernorm_apply(LayerNormShape shape, const float* x, const float* statistics,
                     const float* gamma, const float* beta, float* y);
// dx = residual + gradient of x (residual may be null, and may be dx); dgamma, dbeta +=.
void layernorm_backward(LayerNormShape shape, const float* x, const float* statistics,
                        const float* gamma, const float* dy, const float* residual, float* dx,
                        float* dgamma, float* dbeta);

}  // namespace weir::stage::ops
