// SPDX-License-Identifier: Apache-2.0
// y = x rstd gamma with rstd = 1 / sqrt(mean(x^2) + epsilon) (Zhang and Sennrich, 2019), for H
// vectors of C channels side by side at the begin of each of R rows. A row is `stride` elements
// long, in all arrays of Elements; what follows the vectors in it is neither read nor written. So
// the heads within (B,T,(H+2G)D) are normed where they are. rstd (R,H).
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct RmsNormShape {
  int rows, heads, channels, stride;  // R, H, C; at least H C
  float epsilon;
};
inline RmsNormShape rms_norm_of_rows(int rows, int channels, float epsilon) {
  return {rows, 1, channels, channels, epsilon};
}

struct RmsNormForward {
  RmsNormShape shape;
  const Element *x, *gamma;  // gamma (C)
  Element* y;
  float* rstd;
  auto fields() const { return std::tie(shape, x, gamma, y, rstd); }
};
void run_on_host(const RmsNormForward& op, const Host& host);
void run_on_cuda(const RmsNormForward& op, CudaQueue& queue);

// Computes y again from x and rstd, which is cheaper than keeping it.
struct RmsNormApply {
  RmsNormShape shape;
  const Element* x;
  const float* rstd;
  const Element* gamma;
  Element* y;
  auto fields() const { return std::tie(shape, x, rstd, gamma, y); }
};
void run_on_host(const RmsNormApply& op, const Host& host);
void run_on_cuda(const RmsNormApply& op, CudaQueue& queue);

// dx = residual + gradient of x (residual may be null); dgamma is replaced. dx may be dy or
// residual.
struct RmsNormBackward {
  RmsNormShape shape;
  const Element* x;
  const float* rstd;
  const Element *gamma, *dy, *residual;
  Element* dx;
  float* dgamma;
  auto fields() const { return std::tie(shape, x, rstd, gamma, dy, residual, dx, dgamma); }
};
void run_on_host(const RmsNormBackward& op, const Host& host);
void run_on_cuda(const RmsNormBackward& op, CudaQueue& queue);

}  // namespace weir::stage::ops
