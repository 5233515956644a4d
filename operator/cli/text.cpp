// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/text.h"

#include <algorithm>
#include <cstdint>

#include "worker/base/utf8.h"

namespace weir::cli {
namespace {

constexpr std::size_t kGap = 2;        // spaces between two columns
constexpr std::size_t kNarrowest = 8;  // columns that a cut cell keeps

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Bytes of the character at the start of a valid text.
std::size_t length_at(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && continues(text[length])) ++length;
  return length;
}

std::uint32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  std::uint32_t value = byte(0) & (0x7FU >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) value = value << 6U | (byte(i) & 0x3FU);
  return value;
}

bool acts_on_a_terminal(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) ||        // C0, DEL, C1
         code == 0x200E || code == 0x200F || code == 0x061C ||  // marks of direction
         (code >= 0x2028 && code <= 0x202E) ||                  // separators, embeddings, overrides
         (code >= 0x2066 && code <= 0x2069);                    // isolates
}

}  // namespace

std::string printable(std::string_view text) {
  const std::string valid = valid_utf8(text);
  std::string out;
  for (std::string_view rest = valid; !rest.empty();) {
    const std::string_view character = rest.substr(0, length_at(rest));
    out += acts_on_a_terminal(code_point(character)) ? std::string_view(" ") : character;
    rest.remove_prefix(character.size());
  }
  return out;
}

std::size_t width_of(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, continues));
}

std::string cut(std::string_view text, std::size_t most) {
  if (width_of(text) <= most) return std::string(text);
  constexpr std::string_view kMore = "...";
  std::size_t end = 0;
  for (std::size_t i = 0; i + kMore.size() < most; ++i) end += length_at(text.substr(end));
  return std::string(text.substr(0, end)).append(kMore);
}

Lines table(const std::vector<Row>& rows, const std::vector<std::size_t>& flexible) {
  if (rows.empty()) return {};
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::size_t total = kGap * (widths.size() - 1);
  for (const std::size_t width : widths) total += width;
  while (total > kLineWidth && !flexible.empty()) {
    const std::size_t widest =
        std::ranges::max(flexible, {}, [&](std::size_t c) { return widths[c]; });
    if (widths[widest] <= kNarrowest) break;
    --widths[widest];
    --total;
  }
  Lines lines;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string cell = cut(row[c], std::max<std::size_t>(widths[c], 3));
      line += cell;
      if (c + 1 < row.size())
        line.append(widths[c] + kGap - std::min(width_of(cell), widths[c]), ' ');
    }
    while (line.ends_with(' ')) line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

Lines paragraph(const std::string& head, std::string_view text) {
  const std::size_t indent = width_of(head);
  const std::size_t room = kLineWidth - std::min(indent, kLineWidth / 2);
  const std::string clean = printable(text);
  Lines lines;
  std::string line = head;
  std::size_t used = 0;  // columns behind the head
  for (std::string_view rest = clean; !rest.empty();) {
    const std::size_t begin = rest.find_first_not_of(' ');
    if (begin == rest.npos) break;
    rest.remove_prefix(begin);
    std::string word(rest.substr(0, rest.find(' ')));
    rest.remove_prefix(word.size());
    for (;;) {
      const std::size_t gap = used == 0 ? 0 : 1;
      if (used + gap + width_of(word) <= room) {
        line.append(gap, ' ').append(word);
        used += gap + width_of(word);
        break;
      }
      if (used == 0) {  // a word that is longer than a line is broken
        std::size_t end = 0;
        for (std::size_t i = 0; i < room; ++i) end += length_at(std::string_view(word).substr(end));
        line += word.substr(0, end);
        word.erase(0, end);
      }
      lines.push_back(std::move(line));
      line.assign(indent, ' ');
      used = 0;
    }
  }
  lines.push_back(std::move(line));
  return lines;
}

}  // namespace weir::cli
