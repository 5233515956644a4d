// SPDX-License-Identifier: Apache-2.0
// A product of any shape and alignment, for those for which cuBLASLt has no algorithm. Much slower
// than its: it uses no tensor cores. C++17: nvcc compiles it.
#pragma once

#include "worker/stage/ops/cuda/queue.h"

namespace weir::stage::ops {

// Enqueues the product. Each element is one sum over k in rising order, in float.
void multiply_plainly(cudaStream_t stream, const Product& product, const Operands& operands);

}  // namespace weir::stage::ops
