// SPDX-License-Identifier: Apache-2.0
#include "worker/base/settings.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "worker/base/text.h"

namespace weir {

std::vector<Difference> differences(const Settings& here, const Settings& there) {
  std::vector<Difference> found;
  for (const Setting& own : here) {
    const auto other = std::ranges::find(there, own.name, &Setting::name);
    if (other == there.end() || other->value == own.value) continue;
    found.push_back({.name = own.name, .here = own.value, .there = other->value});
  }
  return found;
}

std::string describe(const std::vector<Difference>& found, const std::string& other_side) {
  return joined(found, "; ", [&](const Difference& one) {
    return one.name + " is " + one.here + ", " + other_side + " has " + one.there;
  });
}

std::string exact_text(double value) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general).ptr;
  return {text.data(), end};
}

}  // namespace weir
