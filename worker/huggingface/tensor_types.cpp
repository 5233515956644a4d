// SPDX-License-Identifier: Apache-2.0
#include "worker/huggingface/tensor_types.h"

#include <bit>
#include <cstring>

#include "worker/base/check.h"
#include "worker/stage/ops/bf16.h"

namespace weir::huggingface {
namespace {

using stage::ops::Bf16;

// IEEE binary16: 1 bit of sign, 5 of exponent (bias 15), 10 of fraction.
float from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t exponent = half >> 10U & 0x1fU, fraction = half & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13U);
  if (exponent == 0) {  // subnormal: fraction x 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign == 0 ? size : -size;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23U | fraction << 13U);
}

template <class Number, class Convert>
void convert(std::string_view bytes, std::span<float> values, Convert one_of) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Number number;
    std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
    values[i] = one_of(number);
  }
}

}  // namespace

bool is_float_type(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

std::size_t bytes_of(std::string_view dtype) {
  return dtype == "F32" ? sizeof(float) : sizeof(std::uint16_t);
}

void to_floats(std::string_view dtype, std::string_view bytes, std::span<float> values) {
  WEIR_CHECK(is_float_type(dtype) && bytes.size() == values.size() * bytes_of(dtype),
             "numbers of a known type");
  if (dtype == "F32") {
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  } else if (dtype == "F16") {
    convert<std::uint16_t>(bytes, values, from_half);
  } else {
    convert<Bf16>(bytes, values, [](Bf16 number) { return stage::ops::widened(number); });
  }
}

void append(std::string_view dtype, std::span<const float> values, std::string& bytes) {
  const std::size_t before = bytes.size(), size = bytes_of(dtype);
  bytes.resize(before + values.size() * size);
  char* to = bytes.data() + before;
  if (dtype == "F32") {
    if (!values.empty()) std::memcpy(to, values.data(), values.size_bytes());
    return;
  }
  for (const float value : values) {
    const Bf16 rounded = stage::ops::rounded<Bf16>(value);
    std::memcpy(to, &rounded, sizeof rounded);
    to += sizeof rounded;
  }
}

// In tiles, so that both sides stay in the cache.
void transpose(std::int64_t rows, std::int64_t columns, const float* from, float* to) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t r = 0; r < rows; r += kTile) {
    for (std::int64_t c = 0; c < columns; c += kTile) {
      for (std::int64_t i = r; i < rows && i < r + kTile; ++i) {
        for (std::int64_t j = c; j < columns && j < c + kTile; ++j) {
          to[j * rows + i] = from[i * columns + j];
        }
      }
    }
  }
}

}  // namespace weir::huggingface
