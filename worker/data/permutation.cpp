// SPDX-License-Identifier: Apache-2.0
// A Feistel network with SplitMix64 as round function.
#include "worker/data/permutation.h"

#include <bit>

#include "worker/base/check.h"
#include "worker/base/random.h"

namespace weir::data {
namespace {
// 4 are pseudo-random (Luby and Rackoff 1988); 2 more for very small halves.
constexpr int kRounds = 6;
}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t key) : size_(size), key_(key) {
  WEIR_CHECK(size >= 1 && size <= (std::uint64_t{1} << 62), "permutation of 1 .. 2^62 elements");
  half_bits_ = (static_cast<int>(std::bit_width(size - 1)) + 1) / 2;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  WEIR_CHECK(index < size_, "index within the permutation");
  do {
    index = encrypt(index);
  } while (index >= size_);
  return index;
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed = left ^ (mix_seed(mix_seed(key_, round), right) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

}  // namespace weir::data
