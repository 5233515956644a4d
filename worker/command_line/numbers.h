// SPDX-License-Identifier: Apache-2.0
// Validators of numbers on command lines, for CLI11: ->transform(whole_in(1, 64)). CLI11's own
// ranges read 010 as 8, 0x10 as 16, nan as any number, and -1 as 2^64-1 if the type is unsigned.
#pragma once

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "worker/base/numbers.h"
#include "worker/base/settings.h"

namespace weir {

inline CLI::Validator whole_in(std::int64_t least, std::int64_t most) {
  return {[least, most](std::string& text) -> std::string {
            const auto value = parse_whole(text, least, most);
            if (!value) return value.error().message;
            text = std::to_string(*value);
            return "";
          },
          "[" + std::to_string(least) + " - " + std::to_string(most) + "]"};
}

inline CLI::Validator number_in(double least, double most) {
  return {[least, most](std::string& text) -> std::string {
            const auto value = parse_number(text, least, most);
            if (!value) return value.error().message;
            text = exact_text(*value);
            return "";
          },
          "[" + exact_text(least) + " - " + exact_text(most) + "]"};
}

}  // namespace weir
