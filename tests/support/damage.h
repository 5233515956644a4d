// SPDX-License-Identifier: Apache-2.0
// Damages a text for tests of readers.
#pragma once

#include <cstddef>
#include <random>
#include <string>

namespace weir::test {

// The text with up to five random changes: another ASCII character, or up to 30 characters less.
inline std::string damaged(std::string text, std::mt19937& random) {
  const auto up_to = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(0, most)(random);
  };
  for (std::size_t change = up_to(5); change > 0; --change) {
    const std::size_t at = up_to(text.size() - 1);
    if (up_to(1) == 0) {
      text[at] = static_cast<char>(up_to(127));
    } else {
      text.erase(at, up_to(30));
    }
  }
  return text;
}

}  // namespace weir::test
