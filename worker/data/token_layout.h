// SPDX-License-Identifier: Apache-2.0
// Where the tokens lie in a file. Each format has a function that reads its header; what follows is
// the same for all: numbers of one type in a row, little-endian. Counts of a header are compared
// with the sizes of the files before anything is read by them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "worker/base/result.h"
#include "worker/data/bytes.h"

namespace weir::data {

enum class TokenType : unsigned char { kU8, kU16, kU32, kI32, kI64 };
std::uint64_t bytes_of(TokenType type);
std::string name_of(TokenType type);  // "u16"

struct TokenLayout {
  TokenType type = TokenType::kU8;
  std::uint64_t begin = 0;   // byte of the first token
  std::uint64_t tokens = 0;  // in a row
  std::string format;        // for users: "Megatron"; "" = flat
};

// The errors of these functions are kInvalid with a reason that does not name the file, or those of
// Bytes.

// An index of Megatron ("MMIDIDX"), and the size of its .bin. The stream of tokens is the sequences
// in their order, so each must begin where the one before it ends.
Result<TokenLayout> megatron_layout(const Bytes& index, std::uint64_t bin_size);
// A file of llm.c: 256 numbers of 32 bits, then the tokens. Nothing: the file does not begin with a
// magic number of llm.c.
Result<std::optional<TokenLayout>> llm_c_layout(const Bytes& file);
// Tokens without a header, as nanoGPT writes them, or the bytes of a text.
Result<TokenLayout> flat_layout(std::uint64_t size, TokenType type);

// Reads tokens `first`, first + 1, ... . kNotFound: a token is outside the vocabulary; the reason
// has its position. Other errors are those of Bytes.
Status read_tokens(const Bytes& file, const TokenLayout& layout, std::uint64_t first,
                   int vocabulary, std::span<std::int32_t> to);

}  // namespace weir::data
