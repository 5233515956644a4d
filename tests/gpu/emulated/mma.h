// SPDX-License-Identifier: Apache-2.0
// CUDA's products of 16 x 16 x 16 by a warp (cuda_runtime.h beside this). Each lane has the whole
// of the factors and a 32nd of the sums. Addresses must be aligned as the real ones must.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major };

constexpr int kSide = 16, kAll = kSide * kSide, kOwn = kAll / 32;

template <class Use, int kM, int kN, int kK, class T, class Layout = void>
struct fragment {
  float values[kAll];  // row by row
};
template <>
struct fragment<accumulator, kSide, kSide, kSide, float, void> {
  float values[kOwn];  // element lane + 32 i
};
using Sums = fragment<accumulator, kSide, kSide, kSide, float, void>;

inline void check_address(const void* address, unsigned stride, unsigned multiple) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  if (bits % 32 != 0 || stride % multiple != 0) weir::emulated::fail();
}

template <class Use>
void load_matrix_sync(fragment<Use, kSide, kSide, kSide, __nv_bfloat16, row_major>& to,
                      const __nv_bfloat16* from, unsigned stride) {
  check_address(from, stride, 8);
  weir::emulated::wait_for_warp();
  for (int i = 0; i < kAll; ++i) {
    to.values[i] = __uint_as_float(unsigned{from[i / kSide * stride + i % kSide].bits} << 16);
  }
  weir::emulated::wait_for_warp();
}
template <class Use>
void load_matrix_sync(fragment<Use, kSide, kSide, kSide, __nv_bfloat16, col_major>& to,
                      const __nv_bfloat16* from, unsigned stride) {
  check_address(from, stride, 8);
  weir::emulated::wait_for_warp();
  for (int i = 0; i < kAll; ++i) {
    to.values[i] = __uint_as_float(unsigned{from[i % kSide * stride + i / kSide].bits} << 16);
  }
  weir::emulated::wait_for_warp();
}
inline void load_matrix_sync(Sums& to, const float* from, unsigned stride, layout_t) {
  check_address(from, stride, 4);
  weir::emulated::wait_for_warp();
  for (int i = 0; i < kOwn; ++i) {
    const int at = weir::emulated::lane() + 32 * i;
    to.values[i] = from[at / kSide * stride + at % kSide];
  }
  weir::emulated::wait_for_warp();
}
inline void store_matrix_sync(float* to, const Sums& from, unsigned stride, layout_t) {
  check_address(to, stride, 4);
  weir::emulated::wait_for_warp();
  for (int i = 0; i < kOwn; ++i) {
    const int at = weir::emulated::lane() + 32 * i;
    to[at / kSide * stride + at % kSide] = from.values[i];
  }
  weir::emulated::wait_for_warp();
}
inline void fill_fragment(Sums& sums, float value) {
  for (float& one : sums.values) one = value;
}
template <class Left, class Right>
void mma_sync(Sums& to, const Left& left, const Right& right, const Sums& from) {
  for (int i = 0; i < kOwn; ++i) {
    const int at = weir::emulated::lane() + 32 * i;
    float sum = from.values[i];
    for (int k = 0; k < kSide; ++k) {
      sum += left.values[at / kSide * kSide + k] * right.values[k * kSide + at % kSide];
    }
    to.values[i] = sum;
  }
}

}  // namespace nvcuda::wmma
