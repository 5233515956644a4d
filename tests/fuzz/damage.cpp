// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/damage.h"

#include <algorithm>
#include <iterator>

namespace weir::fuzz {
namespace {

// Pieces that parsers treat in a special way.
constexpr const char* kPieces[] = {"-1",
                                   "1e999",
                                   "NaN",
                                   "null",
                                   "{}",
                                   "[]",
                                   "\"\"",
                                   "[[[[[[",
                                   "\\u",
                                   "\xff",
                                   " -- ",
                                   "\t",
                                   "\r\n",
                                   ",",
                                   ":",
                                   "0.",
                                   "+",
                                   "x",
                                   "@",
                                   "99999999999999",
                                   "\"a",
                                   "true",
                                   "1e300",
                                   "-9223372036854775809",
                                   "18446744073709551616"};

}  // namespace

std::string damaged(std::string text, std::mt19937& random) {
  const auto up_to = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(0, most)(random);
  };
  for (std::size_t change = 1 + up_to(4); change > 0 && !text.empty(); --change) {
    const std::size_t at = up_to(text.size() - 1);
    switch (up_to(5)) {
      case 0:
        text[at] = static_cast<char>(up_to(255));
        break;
      case 1:
        text.erase(at, 1 + up_to(30));
        break;
      case 2:
        text.insert(at, text.substr(up_to(text.size() - 1), up_to(60)));
        break;
      case 3:
        text.insert(at, kPieces[up_to(std::size(kPieces) - 1)]);
        break;
      case 4:
        text.replace(at, std::min<std::size_t>(1 + up_to(5), text.size() - at),
                     kPieces[up_to(std::size(kPieces) - 1)]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

}  // namespace weir::fuzz
