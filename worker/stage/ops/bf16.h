// SPDX-License-Identifier: Apache-2.0
// bfloat16, the upper half of a float: its range with 8 bits of precision. Arithmetic is always
// done in float on widened values; a result is rounded once, when it is stored. C++17: nvcc
// compiles it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weir::stage::ops {

struct Bf16 {
  std::uint16_t bits;
};

inline float widened(float value) {
  return value;
}
inline float widened(Bf16 value) {  // exact
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// The nearest T. Of two equally near values it is the even one, as on GPUs. Above the largest
// value: infinity.
template <class T>
T rounded(float value);
template <>
inline float rounded<float>(float value) {
  return value;
}
template <>
inline Bf16 rounded<Bf16>(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t even = bits >> 16 & 1;
  const std::uint32_t quiet = bits >> 16 | 0x40;  // a NaN stays a NaN
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return {static_cast<std::uint16_t>(nan ? quiet : (bits + 0x7fff + even) >> 16)};
}

void widen(std::size_t count, const Bf16* from, float* to);
void round(std::size_t count, const float* from, Bf16* to);

}  // namespace weir::stage::ops
