// SPDX-License-Identifier: Apache-2.0
// Plain loops that the compiler vectorises.
#include "worker/stage/ops/bf16.h"

namespace weir::stage::ops {

void widen(std::size_t count, const Bf16* __restrict from, float* __restrict to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}

void round(std::size_t count, const float* __restrict from, Bf16* __restrict to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = rounded<Bf16>(from[i]);
}

}  // namespace weir::stage::ops
