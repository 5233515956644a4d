// SPDX-License-Identifier: Apache-2.0
// Numbers of tensors in files: F32, F16 and BF16, to and from float. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weir::huggingface {

// True for the types that to_floats() takes.
bool is_float_type(std::string_view dtype);
// Bytes of one number of such a type.
std::size_t bytes_of(std::string_view dtype);
// bytes: values.size() numbers of that type, little-endian, at any address. Exact.
void to_floats(std::string_view dtype, std::string_view bytes, std::span<float> values);
// The numbers as F32 or BF16, rounded to nearest even; appended to `bytes`.
void append(std::string_view dtype, std::span<const float> values, std::string& bytes);

// to (columns, rows) = from (rows, columns), transposed.
void transpose(std::int64_t rows, std::int64_t columns, const float* from, float* to);

}  // namespace weir::huggingface
