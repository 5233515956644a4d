// SPDX-License-Identifier: Apache-2.0
// The two conversions that the worker's kernels use (cuda_runtime.h beside this).
#pragma once

#include "worker/stage/ops/bf16.h"

struct EmulatedBfloat16 {
  unsigned short bits;
};
inline EmulatedBfloat16 __float2bfloat16_rn(float value) {
  return {weir::stage::ops::rounded<weir::stage::ops::Bf16>(value).bits};
}
inline unsigned short __bfloat16_as_ushort(EmulatedBfloat16 value) {
  return value.bits;
}
