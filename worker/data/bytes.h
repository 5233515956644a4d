// SPDX-License-Identifier: Apache-2.0
// Bytes with random access: a file, or memory in tests. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/base/result.h"

namespace weir::data {

class Bytes {
 public:
  virtual ~Bytes() = default;
  virtual std::uint64_t size() const = 0;
  // Fills `to` from byte `at` on. kGone names the reason, such as an end before that.
  virtual Status read(std::uint64_t at, std::span<std::byte> to) const = 0;
};

}  // namespace weir::data
