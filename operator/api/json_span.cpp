// SPDX-License-Identifier: Apache-2.0
#include "operator/api/json_span.h"

#include <algorithm>
#include <cstddef>

namespace weir::api {
namespace {

constexpr auto kNone = std::string_view::npos;

std::size_t skip_space(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

// From the opening quote to behind the closing one.
std::size_t skip_string(std::string_view text, std::size_t at) {
  for (std::size_t quote = text.find('"', at + 1); quote != kNone;
       quote = text.find('"', quote + 1)) {
    std::size_t escapes = 0;  // an odd number of them escapes the quote
    while (text[quote - 1 - escapes] == '\\') ++escapes;
    if (escapes % 2 == 0) return quote + 1;
  }
  return kNone;
}

// Behind the value that begins here.
std::size_t skip_value(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    switch (text[at]) {
      case '"':
        at = skip_string(text, at);
        if (at == kNone || depth == 0) return at;
        break;
      case '{':
      case '[':
        ++depth;
        ++at;
        break;
      case '}':
      case ']':
        if (depth == 0) return at;  // the end of what is around a number or a word
        ++at;
        if (--depth == 0) return at;
        break;
      case ',':
        if (depth == 0) return at;
        ++at;
        break;
      default:
        ++at;
    }
  }
  return depth == 0 ? at : kNone;
}

std::string_view trimmed(std::string_view value) {
  return value.substr(0, value.find_last_not_of(" \t\r\n") + 1);
}

// Calls each(key with quotes or "", value) for the members or elements until it answers true. True:
// the text ends with the object or array, and all of it was seen.
template <class Each>
bool walk(std::string_view text, char open, Each&& each) {
  const char close = open == '{' ? '}' : ']';
  std::size_t at = skip_space(text, 0);
  if (at >= text.size() || text[at] != open) return false;
  at = skip_space(text, at + 1);
  while (at < text.size() && text[at] != close) {
    std::string_view key;
    if (open == '{') {
      if (text[at] != '"') return false;
      const std::size_t end = skip_string(text, at);
      if (end == kNone) return false;
      key = text.substr(at, end - at);
      at = skip_space(text, end);
      if (at >= text.size() || text[at] != ':') return false;
      at = skip_space(text, at + 1);
    }
    const std::size_t end = skip_value(text, at);
    if (end == kNone || end == at) return false;
    if (each(key, trimmed(text.substr(at, end - at)))) return false;
    at = skip_space(text, end);
    const bool more = at < text.size() && text[at] == ',';
    if (!more && (at >= text.size() || text[at] != close)) return false;
    if (more) at = skip_space(text, at + 1);
  }
  return at < text.size() && skip_space(text, at + 1) == text.size();
}

}  // namespace

std::string_view json_member(std::string_view object, std::string_view key) {
  std::string_view found;
  walk(object, '{', [&](std::string_view name, std::string_view value) {
    if (json_characters(name) != key) return false;
    found = value;
    return true;
  });
  return found;
}

std::optional<JsonMembers> json_members(std::string_view object) {
  JsonMembers all;
  const bool whole = walk(object, '{', [&](std::string_view key, std::string_view value) {
    all.emplace_back(key, value);
    return false;
  });
  if (!whole) return std::nullopt;
  return all;
}

std::optional<std::vector<std::string_view>> json_elements(std::string_view array) {
  std::vector<std::string_view> all;
  const bool whole = walk(array, '[', [&](std::string_view, std::string_view value) {
    all.push_back(value);
    return false;
  });
  if (!whole) return std::nullopt;
  return all;
}

std::string_view json_characters(std::string_view value) {
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') return "";
  value = value.substr(1, value.size() - 2);
  return value.find('\\') == kNone ? value : "";
}

int json_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  for (std::size_t at = 0; at < text.size();) {
    switch (text[at]) {
      case '"':
        at = skip_string(text, at);  // kNone ends it
        continue;
      case '{':
      case '[':
        deepest = std::max(deepest, ++depth);
        break;
      case '}':
      case ']':
        --depth;
        break;
      default:
        break;
    }
    ++at;
  }
  return deepest;
}

}  // namespace weir::api
