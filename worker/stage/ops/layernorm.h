// SPDX-License-Identifier: Apache-2.0
// y (R,C) = (x - mean) rstd gamma + beta per row. Statistics (R,2): mean, rstd.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct LayerNormShape {
  int rows, channels;
  float epsilon = 1e-5F;  // GPT-2's
};

struct LayerNormForward {
  LayerNormShape shape;
  const Element *x, *gamma, *beta;
  Element* y;
  float* statistics;
  auto fields() const { return std::tie(shape, x, gamma, beta, y, statistics); }
};
void run_on_host(const LayerNormForward& op, const Host& host);
void run_on_cuda(const LayerNormForward& op, CudaQueue& queue);

// Computes y again from x and the statistics, which is cheaper than keeping it.
struct LayerNormApply {
  LayerNormShape shape;
  const Element* x;
  const float* statistics;
  const Element *gamma, *beta;
  Element* y;
  auto fields() const { return std::tie(shape, x, statistics, gamma, beta, y); }
};
void run_on_host(const LayerNormApply& op, const Host& host);
void run_on_cuda(const LayerNormApply& op, CudaQueue& queue);

// dx = residual + gradient of x (residual may be null, and may be dx); dgamma and dbeta are
// replaced.
struct LayerNormBackward {
  LayerNormShape shape;
  const Element* x;
  const float* statistics;
  const Element *gamma, *dy, *residual;
  Element* dx;
  float *dgamma, *dbeta;
  auto fields() const {
    return std::tie(shape, x, statistics, gamma, dy, residual, dx, dgamma, dbeta);
  }
};
void run_on_host(const LayerNormBackward& op, const Host& host);
void run_on_cuda(const LayerNormBackward& op, CudaQueue& queue);

}  // namespace weir::stage::ops
