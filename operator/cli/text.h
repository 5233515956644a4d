// SPDX-License-Identifier: Apache-2.0
// Text for a terminal: safe characters, tables and paragraphs of at most kLineWidth columns. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weir::cli {

constexpr std::size_t kLineWidth = 120;

using Lines = std::vector<std::string>;
using Row = std::vector<std::string>;

// One line without characters that a terminal acts on: control characters (also those above 0x7F)
// and marks of writing direction become spaces, bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view text);

// Columns that a printable text takes: one for each character.
std::size_t width_of(std::string_view text);
// At most `most` columns (`most` >= 3). Longer text ends with "...".
std::string cut(std::string_view text, std::size_t most);

// rows[0] are the headings; all rows have as many cells. Where a line would be too long, cells of
// the columns `flexible` are cut, the widest column first.
Lines table(const std::vector<Row>& rows, const std::vector<std::size_t>& flexible);

// The text with `head` before its first line and as many spaces before the others.
Lines paragraph(const std::string& head, std::string_view text);

}  // namespace weir::cli
