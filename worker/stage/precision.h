// SPDX-License-Identifier: Apache-2.0
// In which numbers a model computes. Parameters, gradients of parameters and Adam's moments are
// float32 in both.
#pragma once

#include <cstdint>

namespace weir::stage {

enum class Precision : unsigned char {
  kFp32,
  kBf16,  // activations and weights in the products and between stages; sums in float32
};

inline constexpr std::int64_t element_bytes(Precision precision) {
  return precision == Precision::kBf16 ? 2 : 4;
}

}  // namespace weir::stage
