// SPDX-License-Identifier: Apache-2.0
// y (R,F) = silu(gate) up with silu(x) = x / (1 + e^-x) (Shazeer, 2020). gate_up (R,2F): both side
// by side in each row.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct SwigluShape {
  int rows, channels;  // R, F
};

struct SwigluForward {
  SwigluShape shape;
  const Element* gate_up;
  Element* y;
  auto fields() const { return std::tie(shape, gate_up, y); }
};
void run_on_host(const SwigluForward& op, const Host& host);
void run_on_cuda(const SwigluForward& op, CudaQueue& queue);

// Replaces dgate_up (R,2F).
struct SwigluBackward {
  SwigluShape shape;
  const Element *gate_up, *dy;
  Element* dgate_up;
  auto fields() const { return std::tie(shape, gate_up, dy, dgate_up); }
};
void run_on_host(const SwigluBackward& op, const Host& host);
void run_on_cuda(const SwigluBackward& op, CudaQueue& queue);

}  // namespace weir::stage::ops
