// SPDX-License-Identifier: Apache-2.0
// What the worker's kernels use of CUDA's bf16 (cuda_runtime.h beside this).
#pragma once

#include "worker/stage/ops/bf16.h"

struct __nv_bfloat16 {
  unsigned short bits;
};
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  return {weir::stage::ops::rounded<weir::stage::ops::Bf16>(value).bits};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
  return value.bits;
}
