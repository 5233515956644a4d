// SPDX-License-Identifier: Apache-2.0
// Reading JSON without exceptions: a value with its path. Missing and null are the same; the first
// wrong type is noted with its path in the Problem that all fields of one document share. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "operator/api/objects.h"
#include "worker/base/result.h"

namespace weir::api {

constexpr std::size_t kMaxJsonDepth = 64;  // a PodTemplateSpec needs about 15

// Parses an object; refuses deeper nesting.
Result<nlohmann::json> parse_json(std::string_view text);

class Field {
 public:
  // Both must outlive every Field made from this one.
  Field(const nlohmann::json& root, std::string& problem);

  Field operator[](const char* key) const;
  bool present() const { return value_ != nullptr; }
  bool is_object() const;
  const std::string& path() const { return path_; }

  std::string text(std::string_view fallback = "") const;
  std::string quantity() const;  // text or number, as text
  int integer(int fallback = 0) const;
  std::int64_t integer64(std::int64_t fallback = 0) const;
  bool boolean(bool fallback = false) const;
  std::optional<int> maybe_integer() const;
  std::optional<std::int64_t> maybe_integer64() const;
  std::optional<Time> time() const;
  std::vector<Field> items() const;
  std::vector<std::string> texts() const;
  std::vector<int> integers() const;
  std::map<std::string, std::string> text_map() const;
  std::string json_text() const;  // "" when missing

 private:
  Field(const nlohmann::json* value, std::string path, std::string* problem);
  void wrong(const char* wanted) const;

  const nlohmann::json* value_;
  std::string path_;
  std::string* problem_;
};

// Text for the API server: invalid UTF-8 replaced, so that it never throws.
std::string dump_json(const nlohmann::json& value);

}  // namespace weir::api
