// SPDX-License-Identifier: Apache-2.0
// The reason of a failure in one line, taken from the last output of a container.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weir::api {

constexpr std::size_t kLongestPlainLine = 512;  // bytes

// output: a termination message or the end of a log, whose first line may be incomplete. The answer
// is the first of these that exists: message and fields of the last JSON line of level error; the
// last line of plain text; message and fields of the last JSON line; the end of an incomplete JSON
// line; "". It has at most kLongestPlainLine bytes and ends with a whole character. Pure.
std::string plain_line(std::string_view output);

}  // namespace weir::api
