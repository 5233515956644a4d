// SPDX-License-Identifier: Apache-2.0
// Text from outside, made fit for a line of a log, an error or a status. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weir {

// The text with U+FFFD for bytes that are not UTF-8.
std::string valid_utf8(std::string_view text);
// One line of valid UTF-8 without control characters, at most `most` bytes (3 or more), cut between
// characters; "..." stands for what was cut off.
std::string one_line(std::string_view text, std::size_t most);
// The same between ' and ', short: how an error shows the text that it is about.
std::string in_quotes(std::string_view text);

}  // namespace weir
