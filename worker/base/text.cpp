// SPDX-License-Identifier: Apache-2.0
#include "worker/base/text.h"

#include <cmath>

namespace weir {

std::string number(double value, int digits) {
  constexpr double kLong = 1e15;  // from here on scientific notation, which fits into status
  return format(std::abs(value) < kLong ? "%.*f" : "%.*e", digits, value);
}

std::string percent(double fraction) {
  return number(fraction * 100, 1);
}

std::string signed_percent(double fraction) {
  return (fraction >= 0 ? "+" : "") + percent(fraction);
}

std::string bits_per_second(double bytes_per_second) {
  const double bits = bytes_per_second * 8;
  if (bits >= 1e9) return number(bits / 1e9, 1) + "Gbit/s";
  if (bits >= 1e6) return number(bits / 1e6, 1) + "Mbit/s";
  return number(bits / 1e3, 1) + "kbit/s";
}

std::string megabytes(std::int64_t bytes) {
  return number(static_cast<double>(bytes) / 1e6, bytes < 10'000'000 ? 2 : 0) + " MB";
}

}  // namespace weir
