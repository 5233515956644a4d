// SPDX-License-Identifier: Apache-2.0
// The bytes of token files, as the programs that made the formats write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weir::data::test {

// A number as little-endian bytes.
template <class T>
std::string raw(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bytes += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xFF);
  return bytes;
}
template <class T, class Numbers>
std::string raw_all(const Numbers& numbers) {
  std::string bytes;
  for (const auto number : numbers) bytes += raw<T>(static_cast<T>(number));
  return bytes;
}

inline std::vector<int> rising(int count, int from = 0) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(from + i);
  return numbers;
}

// The index that megatron-core's IndexedDatasetBuilder writes for sequences of these lengths, each
// of them a document: it lists where documents begin, and the end of the last one.
struct MegatronIndex {
  std::vector<int> lengths;
  int width = 2;  // bytes of a token
  int code = 8;   // of its type
  std::uint64_t version = 1;
  std::uint64_t sequences() const { return lengths.size(); }

  std::string bytes() const {
    std::string places, documents = raw<std::int64_t>(0);
    std::int64_t place = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      places += raw<std::int64_t>(place);
      place += std::int64_t{lengths[i]} * width;
      documents += raw<std::int64_t>(static_cast<std::int64_t>(i) + 1);
    }
    return std::string("MMIDIDX\0\0", 9) + raw<std::uint64_t>(version) +
           raw<std::uint8_t>(static_cast<std::uint8_t>(code)) + raw<std::uint64_t>(sequences()) +
           raw<std::uint64_t>(sequences() + 1) + raw_all<std::int32_t>(lengths) + places +
           documents;
  }
};

// What llm.c's write_datafile puts before the tokens.
inline std::string llm_c_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  return raw(magic) + raw(version) + raw(count) + std::string(253 * 4, '\0');
}

}  // namespace weir::data::test
