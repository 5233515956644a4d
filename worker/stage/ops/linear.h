// SPDX-License-Identifier: Apache-2.0
// y (R,O) = x (R,I) w(O,I)^T + b (O). R rows = samples x tokens. Weights are stored as (outputs,
// inputs), as in PyTorch. Gradients of parameters are added (+=); those of activations are
// replaced.
#pragma once

namespace weir::stage::ops {

struct LinearShape {
  int rows, inputs, outputs;
};

// bias and residual (R,O) may be null. y = residual + b + x w^T, summed in that order. residual may
// be y.
void linear_forward(LinearShape shape, const float* x, const float* weight, const float* bias,
                    const float* residual, float* y);
// dw += dy^T x, db += column sums of dy; db may be null.
void linear_backward_parameters(LinearShape shape, const float* x, const float* dy, float* dweight,
                                float* dbias);
// dx = dy w.
void linear_backward_input(LinearShape shape, const float* dy, const float* weight, float* dx);

}  // namespace weir::stage::ops
