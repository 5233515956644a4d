// SPDX-License-Identifier: Apache-2.0
// Loads and stores of the kernels: what bf16.h says, on the device. For .cu files.
#pragma once

#include <cuda_bf16.h>

#include "worker/stage/ops/bf16.h"

namespace weir::stage::ops::cuda {

__device__ inline float wide(float value) {
  return value;
}
__device__ inline float wide(Bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

template <class T>
__device__ T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline Bf16 narrow<Bf16>(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

}  // namespace weir::stage::ops::cuda
