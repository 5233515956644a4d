// SPDX-License-Identifier: Apache-2.0
// y = max(x, 0), element by element; the slope at 0 is 0.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct ReluForward {
  std::size_t count;
  const Element* x;
  Element* y;  // may be x
  auto fields() const { return std::tie(count, x, y); }
};
void run_on_host(const ReluForward& op, const Host& host);
void run_on_cuda(const ReluForward& op, CudaQueue& queue);

struct ReluBackward {
  std::size_t count;
  const Element *x, *dy;
  Element* dx;  // may be dy
  auto fields() const { return std::tie(count, x, dy, dx); }
};
void run_on_host(const ReluBackward& op, const Host& host);
void run_on_cuda(const ReluBackward& op, CudaQueue& queue);

}  // namespace weir::stage::ops
