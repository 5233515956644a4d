// SPDX-License-Identifier: Apache-2.0
#include "worker/base/time_text.h"

#include <array>
#include <cctype>
#include <cstdio>

namespace weir {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

std::string format(system_clock::time_point time, bool micro) {
  const auto since = std::chrono::floor<microseconds>(time.time_since_epoch());
  const auto day = std::chrono::floor<std::chrono::days>(since);
  const std::chrono::year_month_day date{std::chrono::sys_days(day)};
  const std::chrono::hh_mm_ss clock{since - day};
  std::array<char, 48> text{};
  const int length = std::snprintf(
      text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
      static_cast<int>(clock.seconds().count()));
  std::string out(text.data(), static_cast<std::size_t>(length));
  if (micro) {
    std::snprintf(text.data(), text.size(), ".%06d", static_cast<int>(clock.subseconds().count()));
    out += text.data();
  }
  return out + "Z";
}

// Reads exactly `digits` digits and removes them from text.
std::optional<int> take(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool skip(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<microseconds> take_fraction(std::string_view& text) {
  std::int64_t value = 0;
  std::int64_t unit = 1'000'000;
  if (!skip(text, '.')) return microseconds(0);
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) == 0) return std::nullopt;
  while (!text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0) {
    unit /= 10;
    value += unit * (text[0] - '0');
    text.remove_prefix(1);
  }
  return microseconds(value);
}

std::optional<seconds> take_offset(std::string_view& text) {
  if (skip(text, 'Z')) return seconds(0);
  const int sign = skip(text, '+') ? 1 : skip(text, '-') ? -1 : 0;
  const auto hours = take(text, 2);
  if (sign == 0 || !hours || !skip(text, ':')) return std::nullopt;
  const auto minutes = take(text, 2);
  if (!minutes) return std::nullopt;
  return seconds(sign * (*hours * 3600 + *minutes * 60));
}

}  // namespace

std::string to_rfc3339(system_clock::time_point time) {
  return format(time, false);
}
std::string to_rfc3339_micro(system_clock::time_point time) {
  return format(time, true);
}

std::optional<system_clock::time_point> parse_rfc3339(std::string_view text) {
  const auto year = take(text, 4);
  if (!year || !skip(text, '-')) return std::nullopt;
  const auto month = take(text, 2);
  if (!month || !skip(text, '-')) return std::nullopt;
  const auto day = take(text, 2);
  if (!day || !skip(text, 'T')) return std::nullopt;
  const auto hour = take(text, 2);
  if (!hour || !skip(text, ':')) return std::nullopt;
  const auto minute = take(text, 2);
  if (!minute || !skip(text, ':')) return std::nullopt;
  const auto second = take(text, 2);
  if (!second) return std::nullopt;
  const auto fraction = take_fraction(text);
  if (!fraction) return std::nullopt;
  const auto offset = take_offset(text);
  if (!offset || !text.empty()) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(*hour) + std::chrono::minutes(*minute) +
         seconds(*second) + *fraction - *offset;
}

}  // namespace weir
