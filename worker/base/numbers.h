// SPDX-License-Identifier: Apache-2.0
// Numbers as people write them in options and in the environment. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "worker/base/result.h"

namespace weir {

// Decimal digits with at most one sign. A leading zero makes no octal number of it, and what a
// program might read otherwise is none: 0x10, 1e3, 1_000, "2 ", "".
Result<std::int64_t> parse_whole(std::string_view text, std::int64_t least, std::int64_t most);
// A decimal number, such as 0.5 or 1e-3; neither nan nor inf.
Result<double> parse_number(std::string_view text, double least, double most);

}  // namespace weir
