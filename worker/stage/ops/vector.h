// SPDX-License-Identifier: Apache-2.0
// Vectors of four floats, a width that every 64-bit machine has, so that sums have the same order
// everywhere: lane l holds the elements l, l+4, ..., and the lanes are added as (0+1)+(2+3). For
// host operations only. Transcendental functions are our own, because those of libm differ between
// machines.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::stage::ops {

using Index = std::ptrdiff_t;
inline constexpr Index kLanes = 4;
using Vec [[gnu::vector_size(16)]] = float;
using IntVec [[gnu::vector_size(16)]] = std::int32_t;

inline Vec broadcast(float value) {
  return Vec{value, value, value, value};
}
inline Vec load(const float* from) {
  Vec value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
inline void store(float* to, Vec value) {
  __builtin_memcpy(to, &value, sizeof value);
}
// Loads the first `count` (0..4) elements; the other lanes become `fill`.
inline Vec load_some(const float* from, Index count, float fill) {
  Vec value = broadcast(fill);
  for (Index i = 0; i < count; ++i) value[i] = from[i];
  return value;
}
inline void store_some(float* to, Vec value, Index count) {
  for (Index i = 0; i < count; ++i) to[i] = value[i];
}
inline float sum_of_lanes(Vec value) {
  return (value[0] + value[1]) + (value[2] + value[3]);
}
inline Vec larger(Vec a, Vec b) {
  return a > b ? a : b;
}
inline float largest_lane(Vec value) {
  const float low = value[0] > value[1] ? value[0] : value[1];
  const float high = value[2] > value[3] ? value[2] : value[3];
  return low > high ? low : high;
}

// e^x with a relative error below 2e-7; 0 below -87.3 (also for -inf), e^88 above 88. Method: x = n
// ln 2 + r, a polynomial in r (Cephes, expf.c), times 2^n by setting the exponent bits.
inline Vec exp_of(Vec x) {
  const IntVec tiny = x < broadcast(-87.3F);
  x = tiny ? broadcast(-87.3F) : x;
  x = x > broadcast(88.0F) ? broadcast(88.0F) : x;
  const Vec magic = broadcast(12582912.0F);  // 1.5 x 2^23: adding it rounds to an integer
  const Vec n = (x * broadcast(1.44269504F) + magic) - magic;
  const Vec r = (x - n * broadcast(0.693359375F)) + n * broadcast(2.12194440e-4F);
  Vec p = broadcast(1.9875691500e-4F);
  p = p * r + broadcast(1.3981999507e-3F);
  p = p * r + broadcast(8.3334519073e-3F);
  p = p * r + broadcast(4.1665795894e-2F);
  p = p * r + broadcast(1.6666665459e-1F);
  p = p * r + broadcast(5.0000001201e-1F);
  p = p * (r * r) + r + broadcast(1.0F);
  const IntVec exponent = (__builtin_convertvector(n, IntVec) + 127) << 23;
  Vec power;
  __builtin_memcpy(&power, &exponent, sizeof power);
  return tiny ? broadcast(0.0F) : p * power;
}

// tanh x = 1 - 2 / (1 + e^2x); absolute error below 3e-7.
inline Vec tanh_of(Vec x) {
  const Vec one = broadcast(1.0F);
  return one - broadcast(2.0F) / (one + exp_of(x + x));
}

}  // namespace weir::stage::ops
