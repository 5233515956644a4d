// SPDX-License-Identifier: Apache-2.0
// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the form of GPT-2, element by element.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct GeluForward {
  std::size_t count;
  const Element* x;
  Element* y;  // may be x
  auto fields() const { return std::tie(count, x, y); }
};
void run_on_host(const GeluForward& op, const Host& host);
void run_on_cuda(const GeluForward& op, CudaQueue& queue);

// dx = dy gelu'(x)
struct GeluBackward {
  std::size_t count;
  const Element *x, *dy;
  Element* dx;  // may be dy
  auto fields() const { return std::tie(count, x, dy, dx); }
};
void run_on_host(const GeluBackward& op, const Host& host);
void run_on_cuda(const GeluBackward& op, CudaQueue& queue);

}  // namespace weir::stage::ops
