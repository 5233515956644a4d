// SPDX-License-Identifier: Apache-2.0
// y (R,O) = x (R,I) w(O,I)^T + b (O). R rows = samples x tokens. Weights are stored as (outputs,
// inputs), as in PyTorch. Gradients are replaced.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct LinearShape {
  int rows, inputs, outputs;
};

// bias and residual (R,O) may be null. y = residual + b + x w^T, summed in that order. residual may
// be y.
struct LinearForward {
  LinearShape shape;
  const Element *x, *weight, *bias, *residual;
  Element* y;
  auto fields() const { return std::tie(shape, x, weight, bias, residual, y); }
};
void run_on_host(const LinearForward& op, const Host& host);
void run_on_cuda(const LinearForward& op, CudaQueue& queue);

// dw = dy^T x, db = column sums of dy; db may be null.
struct LinearBackwardParameters {
  LinearShape shape;
  const Element *x, *dy;
  float *dweight, *dbias;
  auto fields() const { return std::tie(shape, x, dy, dweight, dbias); }
};
void run_on_host(const LinearBackwardParameters& op, const Host& host);
void run_on_cuda(const LinearBackwardParameters& op, CudaQueue& queue);

// dx = dy w.
struct LinearBackwardInput {
  LinearShape shape;
  const Element *dy, *weight;
  Element* dx;
  auto fields() const { return std::tie(shape, dy, weight, dx); }
};
void run_on_host(const LinearBackwardInput& op, const Host& host);
void run_on_cuda(const LinearBackwardInput& op, CudaQueue& queue);

}  // namespace weir::stage::ops
