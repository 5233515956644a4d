// SPDX-License-Identifier: Apache-2.0
#include "operator/api/json_read.h"

#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "operator/api/json_span.h"
#include "worker/base/time_text.h"

namespace weir::api {

using nlohmann::json;

Result<json> parse_json(std::string_view text) {
  if (std::cmp_greater(json_depth(text), kMaxJsonDepth)) {
    return Error{Code::kInvalid, "nested deeper than " + std::to_string(kMaxJsonDepth)};
  }
  json root = json::parse(text, nullptr, false);
  if (root.is_discarded()) return Error{Code::kInvalid, "not JSON"};
  if (!root.is_object()) return Error{Code::kInvalid, "not a JSON object"};
  return root;
}

std::string dump_json(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

Field::Field(const json& root, std::string& problem) : Field(&root, "", &problem) {}
Field::Field(const json* value, std::string path, std::string* problem)
    : value_(value != nullptr && value->is_null() ? nullptr : value),
      path_(std::move(path)),
      problem_(problem) {}

void Field::wrong(const char* wanted) const {
  if (problem_->empty()) *problem_ = path_ + ": not " + wanted;
}

Field Field::operator[](const char* key) const {
  std::string path = path_.empty() ? key : path_ + "." + key;
  if (value_ == nullptr) return {nullptr, std::move(path), problem_};
  if (!value_->is_object()) {
    wrong("an object");
    return {nullptr, std::move(path), problem_};
  }
  const auto found = value_->find(key);
  return {found == value_->end() ? nullptr : &*found, std::move(path), problem_};
}

bool Field::is_object() const {
  return value_ != nullptr && value_->is_object();
}

std::string Field::text(std::string_view fallback) const {
  if (value_ == nullptr) return std::string(fallback);
  if (const auto* text = value_->get_ptr<const std::string*>()) return *text;
  wrong("a string");
  return std::string(fallback);
}

std::string Field::quantity() const {
  return value_ != nullptr && value_->is_number() ? value_->dump() : text();
}

std::optional<std::int64_t> Field::maybe_integer64() const {
  if (value_ == nullptr) return std::nullopt;
  if (value_->is_number_integer() &&
      !(value_->is_number_unsigned() &&
        std::cmp_greater(value_->get<std::uint64_t>(), std::numeric_limits<std::int64_t>::max()))) {
    return value_->get<std::int64_t>();
  }
  wrong("a 64-bit integer");
  return std::nullopt;
}

std::optional<int> Field::maybe_integer() const {
  const auto wide = maybe_integer64();
  if (!wide) return std::nullopt;
  if (std::in_range<int>(*wide)) return static_cast<int>(*wide);
  wrong("a 32-bit integer");
  return std::nullopt;
}

int Field::integer(int fallback) const {
  return maybe_integer().value_or(fallback);
}
std::int64_t Field::integer64(std::int64_t fallback) const {
  return maybe_integer64().value_or(fallback);
}

bool Field::boolean(bool fallback) const {
  if (value_ == nullptr) return fallback;
  if (value_->is_boolean()) return value_->get<bool>();
  wrong("true or false");
  return fallback;
}

std::optional<Time> Field::time() const {
  if (value_ == nullptr) return std::nullopt;
  const auto parsed = parse_rfc3339(text());
  if (!parsed) wrong("a time (RFC 3339)");
  return parsed;
}

std::vector<Field> Field::items() const {
  std::vector<Field> all;
  if (value_ == nullptr) return all;
  if (!value_->is_array()) {
    wrong("a list");
    return all;
  }
  all.reserve(value_->size());
  for (const json& item : *value_) {
    all.push_back({&item, path_ + "[" + std::to_string(all.size()) + "]", problem_});
  }
  return all;
}

std::vector<std::string> Field::texts() const {
  std::vector<std::string> all;
  for (const Field& item : items()) all.push_back(item.text());
  return all;
}

std::vector<int> Field::integers() const {
  std::vector<int> all;
  for (const Field& item : items()) all.push_back(item.integer());
  return all;
}

std::map<std::string, std::string> Field::text_map() const {
  std::map<std::string, std::string> all;
  if (value_ == nullptr) return all;
  if (!value_->is_object()) {
    wrong("an object");
    return all;
  }
  for (const auto& [key, item] : value_->items()) {
    all.emplace(key, Field(&item, path_ + "." + key, problem_).text());
  }
  return all;
}

std::string Field::json_text() const {
  return value_ == nullptr ? "" : dump_json(*value_);
}

}  // namespace weir::api
