// SPDX-License-Identifier: Apache-2.0
// Makes text from outside safe to print in a log line, an error or a status. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weir {

// Replaces bytes that are not UTF-8 by U+FFFD.
std::string valid_utf8(std::string_view text);
// Returns one line of valid UTF-8 without control characters, with at most `most` bytes (`most` >=
// 3). Longer text is cut between characters and ends with "...".
std::string one_line(std::string_view text, std::size_t most);
// Returns a short one_line in single quotes, for errors that quote their input.
std::string in_quotes(std::string_view text);

}  // namespace weir
