// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/collective.h"

#include <algorithm>
#include <array>
#include <utility>

#include "worker/base/check.h"

namespace weir::transport {
namespace {

constexpr std::size_t kBlock = 512;  // elements; a block of them fits into the L1 cache

template <class T>
const T* as(const std::byte* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

}  // namespace

Combine sum_doubles_to_floats() {
  return [](std::span<const std::byte* const> inputs, std::size_t count, std::byte* out) {
    auto* const values = reinterpret_cast<float*>(out);
    std::array<double, kBlock> sums{};
    for (std::size_t first = 0; first < count; first += kBlock) {
      const std::size_t size = std::min(kBlock, count - first);
      std::copy_n(as<double>(inputs[0]) + first, size, sums.data());
      for (std::size_t r = 1; r < inputs.size(); ++r) {
        const double* const more = as<double>(inputs[r]) + first;
        for (std::size_t i = 0; i < size; ++i) sums[i] += more[i];
      }
      for (std::size_t i = 0; i < size; ++i) values[first + i] = static_cast<float>(sums[i]);
    }
  };
}

Combine sum_doubles() {
  return [](std::span<const std::byte* const> inputs, std::size_t count, std::byte* out) {
    auto* const sums = reinterpret_cast<double*>(out);
    std::copy_n(as<double>(inputs[0]), count, sums);
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      const double* const more = as<double>(inputs[r]);
      for (std::size_t i = 0; i < count; ++i) sums[i] += more[i];
    }
  };
}

Combine mean_of_floats(std::vector<double> weights) {
  return [weights = std::move(weights)](std::span<const std::byte* const> inputs, std::size_t count,
                                        std::byte* out) {
    WEIR_CHECK(weights.size() == inputs.size(), "one weight for each member");
    auto* const values = reinterpret_cast<float*>(out);
    for (std::size_t i = 0; i < count; ++i) {
      double mean = 0;
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        mean += weights[r] * static_cast<double>(as<float>(inputs[r])[i]);
      }
      values[i] = static_cast<float>(mean);
    }
  };
}

}  // namespace weir::transport
