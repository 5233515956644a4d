// SPDX-License-Identifier: Apache-2.0
// Products of 16 x 8 x 16 by a warp in bf16 with sums in float, and what brings their factors: PTX
// of compute capability 8.0 (PTX ISA, "Matrix multiply-accumulate", mma.m16n8k16 and ldmatrix),
// because it tells which lane has which element, so that results of one product become factors of
// the next without shared memory. For .cu files; a build without CUDA takes <mma.h> of the
// emulator.
//
// Lane 4g + t has, of the sums (16,8), the elements (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1); of
// the left factor (16,16) the pairs from (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8); of the right
// factor (16,8) the pairs down from (2t, g) and (2t+8, g).
#pragma once

#include "worker/stage/ops/cuda/kernel.h"
#ifndef __CUDACC__
#include <mma.h>
#endif

namespace weir::stage::ops {

struct Sums {
  float of[4];
};
struct Pairs {  // of bf16: a left factor, or the right factors of two products side by side
  unsigned of[4];
};

#ifdef __CUDACC__

// Four matrices of 8 x 8: lane 8m + r tells where row r of matrix m begins, at a multiple of 16
// bytes. Lane 4g + t gets the pair at (g, 2t) of each.
__device__ inline Pairs load_matrices(const Bf16* row) {
  Pairs to;
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.of[0]), "=r"(to.of[1]), "=r"(to.of[2]), "=r"(to.of[3])
               : "r"(address)
               : "memory");
  return to;
}
// The same of the matrices transposed: the pair down from (2t, g).
__device__ inline Pairs load_transposed(const Bf16* row) {
  Pairs to;
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.of[0]), "=r"(to.of[1]), "=r"(to.of[2]), "=r"(to.of[3])
               : "r"(address)
               : "memory");
  return to;
}
// sums += left x the right factor whose pairs are upper and lower.
__device__ inline void add_product(Sums& sums, const Pairs& left, unsigned upper, unsigned lower) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums.of[0]), "+f"(sums.of[1]), "+f"(sums.of[2]), "+f"(sums.of[3])
      : "r"(left.of[0]), "r"(left.of[1]), "r"(left.of[2]), "r"(left.of[3]), "r"(upper), "r"(lower));
}
// The first number in the lower half.
__device__ inline unsigned rounded_pair(float first, float second) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
// Copies 16 bytes to shared memory beside what follows; zeros if not `inside`.
__device__ inline void copy_beside(Bf16* to, const Bf16* from, bool inside) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = inside ? 16 : 0;  // that are read
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
               "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
// Waits for this thread's copies; those of others are there after a barrier.
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

#else

inline Pairs load_matrices(const Bf16* row) {
  Pairs to;
  weir::emulated::load_matrices(row, false, to.of);
  return to;
}
inline Pairs load_transposed(const Bf16* row) {
  Pairs to;
  weir::emulated::load_matrices(row, true, to.of);
  return to;
}
inline void add_product(Sums& sums, const Pairs& left, unsigned upper, unsigned lower) {
  weir::emulated::add_product(sums.of, left.of, upper, lower);
}
inline unsigned rounded_pair(float first, float second) {
  return narrow<Bf16>(first).bits | static_cast<unsigned>(narrow<Bf16>(second).bits) << 16;
}
inline void copy_beside(Bf16* to, const Bf16* from, bool inside) {
  weir::emulated::copy_later(to, inside ? from : nullptr);
}
inline void wait_for_copies() {
  weir::emulated::finish_copies();
}

#endif

}  // namespace weir::stage::ops
