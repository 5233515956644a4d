// SPDX-License-Identifier: Apache-2.0
#include "worker/base/numbers.h"

#include <charconv>
#include <sstream>

#include "worker/base/utf8.h"

namespace weir {
namespace {

template <typename Number>
Result<Number> parse(std::string_view text, Number least, Number most, const char* kind) {
  std::string_view digits = text;
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  Number value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (whole && value >= least && value <= most) return value;  // nan fails both comparisons
  std::ostringstream why;
  why << "must be a " << kind << " from " << least << " to " << most << ", found "
      << in_quotes(text);
  return invalid(why.str());
}

}  // namespace

Result<std::int64_t> parse_whole(std::string_view text, std::int64_t least, std::int64_t most) {
  return parse(text, least, most, "whole number");
}

Result<double> parse_number(std::string_view text, double least, double most) {
  return parse(text, least, most, "number");
}

}  // namespace weir
