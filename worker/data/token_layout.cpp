// SPDX-License-Identifier: Apache-2.0
#include "worker/data/token_layout.h"

#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "worker/base/check.h"

namespace weir::data {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens lie as they are in memory");

// Widens numbers of type T. Returns the index of the first one that is no token of the vocabulary,
// or their count.
template <class T>
std::size_t widen(std::span<const std::byte> from, int vocabulary, std::span<std::int32_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T token;
    std::memcpy(&token, from.data() + i * sizeof(T), sizeof(T));
    if (std::cmp_less(token, 0) || std::cmp_greater_equal(token, vocabulary)) return i;
    to[i] = static_cast<std::int32_t>(token);
  }
  return to.size();
}

std::size_t widen(TokenType type, std::span<const std::byte> from, int vocabulary,
                  std::span<std::int32_t> to) {
  switch (type) {
    case TokenType::kU8:
      return widen<std::uint8_t>(from, vocabulary, to);
    case TokenType::kU16:
      return widen<std::uint16_t>(from, vocabulary, to);
    case TokenType::kU32:
      return widen<std::uint32_t>(from, vocabulary, to);
    case TokenType::kI32:
      return widen<std::int32_t>(from, vocabulary, to);
    case TokenType::kI64:
      return widen<std::int64_t>(from, vocabulary, to);
  }
  WEIR_CHECK(false, "a type of tokens");
}

// The text of one number.
std::string text_of(TokenType type, std::span<const std::byte> from) {
  const bool is_signed = type == TokenType::kI32 || type == TokenType::kI64;
  std::uint64_t bits = 0;
  std::memcpy(&bits, from.data(), from.size());
  if (!is_signed) return std::to_string(bits);
  return std::to_string(type == TokenType::kI32 ? std::int64_t{static_cast<std::int32_t>(bits)}
                                                : static_cast<std::int64_t>(bits));
}

}  // namespace

std::uint64_t bytes_of(TokenType type) {
  constexpr std::uint64_t kBytes[] = {1, 2, 4, 4, 8};
  return kBytes[static_cast<std::size_t>(type)];
}

std::string name_of(TokenType type) {
  constexpr const char* kNames[] = {"u8", "u16", "u32", "i32", "i64"};
  return kNames[static_cast<std::size_t>(type)];
}

Status read_tokens(const Bytes& file, const TokenLayout& layout, std::uint64_t first,
                   int vocabulary, std::span<std::int32_t> to) {
  WEIR_CHECK(first <= layout.tokens && to.size() <= layout.tokens - first, "tokens of the file");
  const std::uint64_t width = bytes_of(layout.type);
  std::vector<std::byte> raw(to.size() * width);
  WEIR_OK(file.read(layout.begin + first * width, raw));
  const std::size_t fits = widen(layout.type, raw, vocabulary, to);
  if (fits == to.size()) return Unit{};
  return Error{Code::kNotFound,
               "token " + text_of(layout.type, std::span(raw).subspan(fits * width, width)) +
                   " at position " + std::to_string(first + fits) +
                   " is outside the vocabulary of " + std::to_string(vocabulary)};
}

}  // namespace weir::data
