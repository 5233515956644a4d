// SPDX-License-Identifier: Apache-2.0
// Little-endian integers in byte spans, for frames and handshakes.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

namespace weir::wire {

template <class T>
void store(std::span<std::byte> out, std::size_t at, T value) {
  static_assert(std::is_unsigned_v<T>);
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out[at + i] = static_cast<std::byte>((value >> (8 * i)) & 0xFF);
  }
}

template <class T>
T load(std::span<const std::byte> in, std::size_t at) {
  static_assert(std::is_unsigned_v<T>);
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(value | (static_cast<T>(std::to_integer<T>(in[at + i])) << (8 * i)));
  }
  return value;
}

}  // namespace weir::wire
