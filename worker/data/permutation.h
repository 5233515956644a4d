// SPDX-License-Identifier: Apache-2.0
// A pseudo-random permutation of 0 .. size-1 without a table: a Feistel network over the next power
// of four, walked until the result is in range (Black and Rogaway, "Ciphers with Arbitrary Finite
// Domains", 2002: cycle walking). On average below four rounds of the network a call. Pure.
#pragma once

#include <cstdint>

namespace weir::data {

class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t key);   // size 1 .. 2^62
  std::uint64_t operator()(std::uint64_t index) const;  // index < size; so is the result

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t size_;
  std::uint64_t key_;
  int half_bits_ = 0;
};

}  // namespace weir::data
