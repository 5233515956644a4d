// SPDX-License-Identifier: Apache-2.0
// Reads a status with the field list of operator/api/status_fields.h from a parsed JSON. A member
// that is missing or has a wrong type leaves its value. Texts become printable, because they end on
// a terminal. Not for other rooms.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/status_fields.h"
#include "operator/cli/text.h"
#include "worker/base/time_text.h"

namespace weir::cli {

class StatusReader {
 public:
  explicit StatusReader(const nlohmann::json& object) : object_(&object) {}

  void operator()(const char* path, std::string& out) const {
    if (const auto* value = at(path); value != nullptr && value->is_string())
      out = printable(value->get_ref<const std::string&>());
  }
  void operator()(const char* path, bool& out) const {
    if (const auto* value = at(path); value != nullptr && value->is_boolean())
      out = value->get<bool>();
  }
  void operator()(const char* path, std::int64_t& out) const { out = whole(path).value_or(out); }
  void operator()(const char* path, int& out) const {
    std::optional<int> read;
    (*this)(path, read);
    out = read.value_or(out);
  }
  void operator()(const char* path, api::Time& out) const { out = time(path).value_or(out); }
  void operator()(const char* path, std::optional<std::int64_t>& out) const { out = whole(path); }
  void operator()(const char* path, std::optional<int>& out) const {
    const auto value = whole(path);
    const bool fits = value && *value >= std::numeric_limits<int>::min() &&
                      *value <= std::numeric_limits<int>::max();
    out = fits ? std::optional(static_cast<int>(*value)) : std::nullopt;
  }
  void operator()(const char* path, std::optional<api::Time>& out) const { out = time(path); }
  void operator()(const char* path, std::vector<int>& out) const {
    const auto* list = at(path);
    if (list == nullptr || !list->is_array()) return;
    for (const nlohmann::json& item : *list) out.push_back(item.is_number() ? item.get<int>() : 0);
  }
  template <class T>
  void operator()(const char* path, std::optional<T>& out) const {
    if (const auto* value = at(path); value != nullptr) fields(StatusReader(*value), out.emplace());
  }
  template <class T>
  void operator()(const char* path, std::vector<T>& out) const {
    const auto* list = at(path);
    if (list == nullptr || !list->is_array()) return;
    for (const nlohmann::json& item : *list) fields(StatusReader(item), out.emplace_back());
  }
  template <class T>
    requires std::is_class_v<T>
  void operator()(const char* path, T& out) const {
    if (const auto* value = at(path); value != nullptr) fields(StatusReader(*value), out);
  }
  void always(const char* path, auto& out) const { (*this)(path, out); }
  bool has(const char* path) const { return at(path) != nullptr; }
  static constexpr bool kReads = true;

 private:
  const nlohmann::json* at(std::string_view path) const {
    const nlohmann::json* value = object_;
    for (;;) {
      const std::size_t dot = path.find('.');
      if (!value->is_object()) return nullptr;
      const auto found = value->find(std::string(path.substr(0, dot)));
      if (found == value->end() || found->is_null()) return nullptr;
      value = &*found;
      if (dot == path.npos) return value;
      path.remove_prefix(dot + 1);
    }
  }
  std::optional<std::int64_t> whole(const char* path) const {
    const auto* value = at(path);
    if (value == nullptr || !value->is_number_integer()) return std::nullopt;
    return value->get<std::int64_t>();
  }
  std::optional<api::Time> time(const char* path) const {
    std::string text;
    (*this)(path, text);
    return parse_rfc3339(text);
  }

  const nlohmann::json* object_;
};

}  // namespace weir::cli
