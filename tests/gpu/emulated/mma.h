// SPDX-License-Identifier: Apache-2.0
// The PTX of worker/stage/ops/cuda/tensor_core.h, for the emulator (cuda_runtime.h beside this),
// with the documented places of elements in lanes. Addresses must be aligned as the real ones must.
#pragma once

#include <cuda_runtime.h>

#include "worker/stage/ops/bf16.h"

namespace weir::emulated {

inline float widened_half(unsigned pair, int which) {
  return __uint_as_float((which == 0 ? pair << 16 : pair) & 0xffff0000U);
}

// ldmatrix.x4: lane 8m + r has given the address of row r of matrix m.
inline void load_matrices(const stage::ops::Bf16* row, bool transposed, unsigned* to) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) fail();
  const std::uint64_t* rows = of_warp(reinterpret_cast<std::uint64_t>(row));
  const int g = lane() / 4, t = lane() % 4;
  const auto at = [&](int matrix, int r, int c) -> unsigned {
    return reinterpret_cast<const stage::ops::Bf16*>(rows[8 * matrix + r])[c].bits;
  };
  for (int m = 0; m < 4; ++m) {
    to[m] = transposed ? at(m, 2 * t, g) | at(m, 2 * t + 1, g) << 16
                       : at(m, g, 2 * t) | at(m, g, 2 * t + 1) << 16;
  }
  wait_for_warp();  // all have read
}

// mma.m16n8k16
inline void add_product(float* sums, const unsigned* left, unsigned upper, unsigned lower) {
  struct Factors {
    unsigned left[4], right[2];
  };
  const Factors own = {{left[0], left[1], left[2], left[3]}, {upper, lower}};
  const std::uint64_t* all = of_warp(reinterpret_cast<std::uint64_t>(&own));
  const auto of = [&](int from) { return reinterpret_cast<const Factors*>(all[from]); };
  const int g = lane() / 4, t = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int below = i / 2, column = 2 * t + i % 2;
    float sum = sums[i];
    for (int k = 0; k < 16; ++k) {
      const int pair = k % 8 / 2, half = k / 8;
      sum += widened_half(of(4 * g + pair)->left[2 * half + below], k % 2) *
             widened_half(of(4 * column + pair)->right[half], k % 2);
    }
    sums[i] = sum;
  }
  wait_for_warp();  // all have read
}

}  // namespace weir::emulated
