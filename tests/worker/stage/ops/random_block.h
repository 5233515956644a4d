// SPDX-License-Identifier: Apache-2.0
// Blocks of numbers that meet the edges of block codecs, for the kernels of the host and of a GPU.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "worker/base/random.h"

namespace weir::test {

// Floats of all sizes, or all of one size, with zeros, subnormals, infinities and NaNs among them.
inline std::vector<float> random_block(Random& random, std::size_t count) {
  std::vector<float> block(count);
  const std::uint64_t kind = random.below(16);
  const int size = static_cast<int>(random.below(250)) - 125;
  for (float& x : block) {
    const auto bits = static_cast<std::uint32_t>(random.below(1ULL << 32U));
    if (kind == 0) {
      x = std::bit_cast<float>(bits);
    } else if (kind < 4) {
      x = std::ldexp(static_cast<float>(2 * random.uniform() - 1),
                     size - static_cast<int>(random.below(40)));
    } else {
      x = std::ldexp(static_cast<float>(2 * random.uniform() - 1), size);
    }
  }
  // The largest at the very edges between two scales.
  if (kind == 5) {
    constexpr float kEdges[] = {127, 63.5F, 31, 15.5F, 1, 2, 126.99999F, 127.00001F, 31.000002F};
    block[random.below(count)] = std::ldexp(kEdges[random.below(std::size(kEdges))], size % 100);
  }
  return block;
}

}  // namespace weir::test
