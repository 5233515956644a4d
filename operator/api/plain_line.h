// SPDX-License-Identifier: Apache-2.0
// The reason of a failure in one line, out of what a container left behind.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weir::api {

constexpr std::size_t kLongestPlainLine = 512;  // bytes

// `left`: a termination message or the end of a log, whose first line may be cut. The answer is the
// message and the fields of the last JSON line of level error; else the last line of plain text;
// else the message of the last JSON line. One line, at most kLongestPlainLine bytes, cut between
// characters. "": nothing was left. Pure.
std::string plain_line(std::string_view left);

}  // namespace weir::api
