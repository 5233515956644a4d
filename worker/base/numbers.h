// SPDX-License-Identifier: Apache-2.0
// Reads numbers in options and in the environment. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "worker/base/result.h"

namespace weir {

// Reads decimal digits with at most one sign. A leading zero does not mean octal. Texts that
// another program might read as a different number are refused: 0x10, 1e3, 1_000, "2 ", "".
Result<std::int64_t> parse_whole(std::string_view text, std::int64_t least, std::int64_t most);
// Reads a decimal number such as 0.5 or 1e-3. Refuses nan and inf.
Result<double> parse_number(std::string_view text, double least, double most);

}  // namespace weir
