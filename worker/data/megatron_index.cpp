// SPDX-License-Identifier: Apache-2.0
// The index of Megatron's IndexedDataset (megatron/core/datasets/indexed_dataset.py): "MMIDIDX" and
// two zero bytes, u64 version, u8 type, u64 sequences, u64 documents, i32 length of each sequence
// in tokens, i64 byte of each sequence in the .bin, i64 first sequence of each document.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "worker/data/token_layout.h"

namespace weir::data {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::uint64_t kIndexHeader = 34;
constexpr std::uint64_t kOfSequence = 4 + 8, kOfDocument = 8;  // bytes in the index
constexpr std::size_t kAtOnce = 1 << 16;                       // sequences that are read at a time

template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

Result<TokenType> type_of(int code) {
  switch (code) {
    case 1:
      return TokenType::kU8;
    case 4:
      return TokenType::kI32;
    case 5:
      return TokenType::kI64;
    case 8:
      return TokenType::kU16;
    default:
      return invalid("type " + std::to_string(code) +
                     " is none of 1 (u8), 4 (i32), 5 (i64), 8 (u16)");
  }
}

// Compares the sequences with each other and returns the bytes that they have together.
Result<std::uint64_t> stream_of(const Bytes& index, std::uint64_t sequences, std::uint64_t width,
                                std::uint64_t bin_size) {
  std::uint64_t end = 0;  // of the sequences so far; at most bin_size
  std::vector<std::byte> lengths, places;
  for (std::uint64_t first = 0; first < sequences; first += kAtOnce) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(kAtOnce, sequences - first));
    lengths.resize(count * 4);
    places.resize(count * 8);
    WEIR_OK(index.read(kIndexHeader + first * 4, lengths));
    WEIR_OK(index.read(kIndexHeader + sequences * 4 + first * 8, places));
    for (std::size_t i = 0; i < count; ++i) {
      const auto length = number_at<std::int32_t>(lengths, i * 4);
      const std::string sequence = "sequence " + std::to_string(first + i);
      if (length < 0) return invalid(sequence + " has a length of " + std::to_string(length));
      if (number_at<std::uint64_t>(places, i * 8) != end)
        return invalid(sequence + " does not begin where the one before it ends");
      end += static_cast<std::uint64_t>(length) * width;
      if (end > bin_size) {
        return invalid(sequence + " ends at byte " + std::to_string(end) + ", the .bin has " +
                       std::to_string(bin_size));
      }
    }
  }
  return end;
}

}  // namespace

Result<TokenLayout> megatron_layout(const Bytes& index, std::uint64_t bin_size) {
  if (index.size() < kIndexHeader)
    return invalid(std::to_string(index.size()) + " bytes are no header of an index");
  std::array<std::byte, kIndexHeader> header{};
  WEIR_OK(index.read(0, header));
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0)
    return invalid("does not begin with MMIDIDX");
  if (const auto version = number_at<std::uint64_t>(header, 9); version != 1)
    return invalid("version " + std::to_string(version) + " is not 1");
  WEIR_TRY(const TokenType type, type_of(std::to_integer<int>(header[17])));
  const auto sequences = number_at<std::uint64_t>(header, 18);
  const auto documents = number_at<std::uint64_t>(header, 26);
  const std::uint64_t room = index.size() - kIndexHeader;
  if (sequences > room / kOfSequence || documents > room / kOfDocument ||
      sequences * kOfSequence + documents * kOfDocument != room) {
    return invalid("its " + std::to_string(index.size()) + " bytes are not those of " +
                   std::to_string(sequences) + " sequences and " + std::to_string(documents) +
                   " documents");
  }
  WEIR_TRY(const std::uint64_t end, stream_of(index, sequences, bytes_of(type), bin_size));
  if (end != bin_size) {
    return invalid("its sequences end at byte " + std::to_string(end) + ", the .bin has " +
                   std::to_string(bin_size));
  }
  return TokenLayout{.type = type, .tokens = end / bytes_of(type), .format = "Megatron"};
}

}  // namespace weir::data
