// SPDX-License-Identifier: Apache-2.0
// Numbers and lists as texts for users. Pure.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

namespace weir {

// Text in printf's format, at most 239 bytes.
template <class... Values>
std::string format(const char* format, Values... values) {
  char buffer[240];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

std::string number(double value, int digits);          // e.g. "1.42"; scientific from 1e15 on
std::string percent(double fraction);                  // without the sign, e.g. "11.2"
std::string signed_percent(double fraction);           // "+11.2"
std::string bits_per_second(double bytes_per_second);  // e.g. "9.1Gbit/s"
std::string megabytes(std::int64_t bytes);             // e.g. "2.10 MB"

// The texts or numbers of `items` with `separator` between them, e.g. "32,32". `text_of` is a
// function or a member of an item; by default the item itself.
template <class Items, class TextOf = std::identity>
std::string joined(const Items& items, std::string_view separator = ",", TextOf text_of = {}) {
  std::string all;
  for (const auto& item : items) {
    if (!all.empty()) all += separator;
    const auto& text = std::invoke(text_of, item);
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(text)>>) {
      all += std::to_string(text);
    } else {
      all += text;
    }
  }
  return all;
}

}  // namespace weir
