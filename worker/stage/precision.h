// SPDX-License-Identifier: Apache-2.0
// The precision in which a model computes. Parameters, their gradients and Adam's moments are
// float32 in both.
#pragma once

#include <cstdint>

namespace weir::stage {

enum class Precision : unsigned char {
  kFp32,
  kBf16,  // for activations and weights, in products and between stages; sums are float32
};

inline constexpr std::int64_t element_bytes(Precision precision) {
  return precision == Precision::kBf16 ? 2 : 4;
}

}  // namespace weir::stage
