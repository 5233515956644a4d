// SPDX-License-Identifier: Apache-2.0
#include "worker/protocol/json_io.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

namespace weir::protocol {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 32;  // our documents are far flatter; dump() recurses once per level

// Counts brackets outside of strings before the parser allocates memory.
bool nested_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxNesting) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Text of a value for an error message.
std::string shown(const json& value) {
  constexpr std::size_t kMost = 40;
  std::string text = dumped(value);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace

Result<Document> Document::parse(std::string_view text) {
  if (nested_too_deep(text)) {
    return invalid("nested deeper than " + std::to_string(kMaxNesting) + " levels");
  }
  auto root = std::make_shared<json>(json::parse(text, nullptr, false));
  if (root->is_discarded()) return invalid("not valid JSON");
  if (!root->is_object()) return invalid("not a JSON object");
  return Document(std::move(root));
}

Reader::Reader(const json& value, std::string path, std::shared_ptr<State> state)
    : value_(&value),
      path_(std::move(path)),
      state_(state ? std::move(state) : std::make_shared<State>()) {}

void Reader::fail(const char* name, const std::string& why) {
  if (!ok()) return;
  const std::string dot = path_.empty() || *name == '\0' ? "" : ".";
  state_->error = invalid(path_ + dot + name + ": " + why);
}

const json* Reader::find(const char* name) const {
  if (*name == '\0') return value_;  // an element of a list
  const auto found = value_->find(name);
  return found == value_->end() ? nullptr : &*found;
}

bool Reader::has(const char* name) const {
  const json* const value = find(name);
  return value != nullptr && !value->is_null();
}

Reader Reader::child(const char* name) const {
  return {*find(name), path_.empty() ? name : path_ + "." + name, state_};
}

Reader Reader::at(std::size_t i) const {
  return {(*value_)[i], path_ + "[" + std::to_string(i) + "]", state_};
}

bool Reader::is_object(const char* name) {
  if (!ok() || !has(name)) return false;
  if (find(name)->is_object()) return true;
  fail(name, shown(*find(name)) + " is not an object");
  return false;
}

bool Reader::check_object() {
  return is_object("");
}

std::size_t Reader::list_size(const char* name) {
  if (!ok() || !has(name)) return 0;
  if (find(name)->is_array()) return find(name)->size();
  fail(name, shown(*find(name)) + " is not a list");
  return 0;
}

void Reader::integer(const char* name, std::int64_t least, std::int64_t most, std::int64_t& value) {
  if (!ok() || !has(name)) return;
  const json& found = *find(name);
  const bool too_large =
      found.is_number_unsigned() && found.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
  if (!found.is_number_integer() || too_large || found.get<std::int64_t>() < least) {
    const bool any = most == std::numeric_limits<std::int64_t>::max();
    return fail(name,
                shown(found) + " is no integer" +
                    (any ? "" : " of " + std::to_string(least) + " to " + std::to_string(most)));
  }
  value = found.get<std::int64_t>();
}

void Reader::operator()(const char* name, int& value) {
  std::int64_t wide = value;
  integer(name, std::numeric_limits<int>::min(), std::numeric_limits<int>::max(), wide);
  value = static_cast<int>(wide);
}

void Reader::operator()(const char* name, std::uint32_t& value) {
  std::int64_t wide = value;
  integer(name, 0, std::numeric_limits<std::uint32_t>::max(), wide);
  value = static_cast<std::uint32_t>(wide);
}

void Reader::operator()(const char* name, std::int64_t& value) {
  integer(name, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
          value);
}

void Reader::operator()(const char* name, bool& value) {
  if (!ok() || !has(name)) return;
  const json& found = *find(name);
  if (!found.is_boolean()) return fail(name, shown(found) + " is neither true nor false");
  value = found.get<bool>();
}

void Reader::operator()(const char* name, double& value) {
  if (!ok()) return;
  const json* const found = find(name);
  if (found == nullptr) return;
  if (found->is_null()) {
    value = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  if (!found->is_number()) return fail(name, shown(*found) + " is not a number");
  value = found->get<double>();
}

void Reader::operator()(const char* name, std::string& value) {
  if (!ok() || !has(name)) return;
  const json& found = *find(name);
  if (!found.is_string()) return fail(name, shown(found) + " is not a text");
  value = found.get<std::string>();
}

void Reader::document(const char* name, std::string& text) {
  if (is_object(name)) text = dumped(*find(name));
}

void Reader::self(int& value) {
  if (value_->is_null()) return fail("", "null is no integer");
  (*this)("", value);
}
void Reader::self(double& value) {
  (*this)("", value);
}
void Reader::self(std::string& value) {
  if (value_->is_null()) return fail("", "null is not a text");
  (*this)("", value);
}
void Reader::self(std::array<std::string, 2>& pair) {
  if (!value_->is_array() || value_->size() != pair.size()) return fail("", "not a pair of texts");
  for (std::size_t i = 0; i < pair.size(); ++i) at(i).self(pair[i]);
}

std::vector<std::string> Reader::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : value_->items()) keys.push_back(key);
  return keys;
}

Writer::Writer() : value_(std::make_unique<json>(json::object())) {}
Writer::~Writer() = default;

void Writer::operator()(const char* name, bool value) {
  (*value_)[name] = value;
}
void Writer::operator()(const char* name, std::int64_t value) {
  (*value_)[name] = value;
}
void Writer::operator()(const char* name, double value) {
  if (std::isfinite(value)) {
    (*value_)[name] = value;
  } else {
    (*value_)[name] = nullptr;
  }
}
void Writer::operator()(const char* name, const std::string& value) {
  (*value_)[name] = value;
}
void Writer::operator()(const char* name, const std::vector<int>& values) {
  (*value_)[name] = values;
}
void Writer::operator()(const char* name, const std::vector<double>& values) {
  (*value_)[name] = values;
}
void Writer::operator()(const char* name, const std::vector<std::string>& values) {
  (*value_)[name] = values;
}

void Writer::document(const char* name, const std::string& text) {
  json inner = json::parse(text, nullptr, false);
  if (!inner.is_discarded()) (*value_)[name] = std::move(inner);
}

std::string Writer::text() const {
  return dumped(*value_);
}

void Writer::put(const char* name, const Writer& inner) {
  (*value_)[name] = std::move(*inner.value_);
}
void Writer::put_list(const char* name) {
  (*value_)[name] = json::array();
}
void Writer::append(const char* name, const Writer& inner) {
  (*value_)[name].push_back(std::move(*inner.value_));
}

}  // namespace weir::protocol
