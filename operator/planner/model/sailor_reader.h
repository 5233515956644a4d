// SPDX-License-Identifier: Apache-2.0
// Values of one of Sailor's JSON files. Every error is kInvalid: "NAME:LINE: POINTER: reason".
#pragma once

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "operator/planner/model/json_lines.h"
#include "worker/base/result.h"

namespace weir::planner {

struct SailorReader {
  static constexpr int kMostCount = 65536;  // samples, degrees, devices of a server

  std::string_view text;
  const std::string& name;

  Error bad(const std::string& pointer, const std::string& reason) const {
    return json_error(text, name, pointer.empty() ? "/" : pointer, reason);
  }

  // A key that is a whole number from `least`.
  Result<int> count(const std::string& key, const std::string& pointer, int least) const {
    int value = 0;
    const auto [stop, failed] = std::from_chars(key.data(), key.data() + key.size(), value);
    if (failed != std::errc{} || stop != key.data() + key.size() || value < least ||
        value > kMostCount) {
      return bad(pointer, "expected a key that is a number >= " + std::to_string(least));
    }
    return value;
  }

  Result<double> number(const nlohmann::json& value, const std::string& pointer, double least,
                        double most) const {
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      return bad(pointer, "expected a number");
    }
    const auto result = value.get<double>();
    if (result < least || result > most) return bad(pointer, "out of range");
    return result;
  }

  Status object(const nlohmann::json& value, const std::string& pointer) const {
    if (value.is_object() && !value.empty()) return Unit{};
    return bad(pointer, "expected an object with members");
  }
};

}  // namespace weir::planner
