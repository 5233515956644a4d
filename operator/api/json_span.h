// SPDX-License-Identifier: Apache-2.0
// Parts of a JSON text, found by scanning it: no tree, no copy. What is found is not checked to be
// JSON itself; parse_json does that. Watch events and lists go through here, and what of an object
// nobody reads is left out before it is parsed (a pod of 10 kB has 2 kB of metadata and status).
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace weir::api {

// Value of this member of a JSON object; "" when the text is no object, is broken before it, or has
// no such member. Keys with escapes are never equal.
std::string_view json_member(std::string_view object, std::string_view key);
// All members of an object, keys with their quotes; nothing when the text is not one whole object.
using JsonMembers = std::vector<std::pair<std::string_view, std::string_view>>;
std::optional<JsonMembers> json_members(std::string_view object);
// All elements; nothing when the text is not one whole array.
std::optional<std::vector<std::string_view>> json_elements(std::string_view array);
// Characters of a JSON string without escapes; "" for anything else.
std::string_view json_characters(std::string_view value);
// How deep objects and arrays are nested; brackets that do not fit each other count.
int json_depth(std::string_view text);

}  // namespace weir::api
