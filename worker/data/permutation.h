// SPDX-License-Identifier: Apache-2.0
// A pseudo-random permutation of 0 .. size-1 without a table: a Feistel network over the next power
// of four, repeated until the result is in range (Black and Rogaway, "Ciphers with Arbitrary Finite
// Domains", 2002: cycle walking). A call takes fewer than four passes of the network on average.
// Pure.
#pragma once

#include <cstdint>

namespace weir::data {

class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t key);   // size 1 .. 2^62
  std::uint64_t operator()(std::uint64_t index) const;  // index and result are below size

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t size_;
  std::uint64_t key_;
  int half_bits_ = 0;
};

}  // namespace weir::data
