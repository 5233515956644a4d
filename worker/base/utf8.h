// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace weir {

// The text with U+FFFD for bytes that are not UTF-8.
std::string valid_utf8(std::string_view text);

}  // namespace weir
