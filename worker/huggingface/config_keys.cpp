// SPDX-License-Identifier: Apache-2.0
#include "worker/huggingface/config_keys.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace weir::huggingface {
namespace {

using nlohmann::json;

bool says_nothing(const json& value) {
  if (value.is_null() || (value.is_boolean() && !value.get<bool>())) return true;
  if (value.is_number()) return value.get<double>() == 0;
  return (value.is_string() && value.get<std::string>().empty()) ||
         (value.is_structured() && value.empty());
}

}  // namespace

Error ConfigKeys::wrong(const std::string& key, const std::string& what) const {
  return invalid("config.json: " + path_ + key, what);
}

const json* ConfigKeys::take(const std::string& key) {
  read_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

Result<int> ConfigKeys::whole(const std::string& key, std::optional<int> usual) {
  const json* value = take(key);
  if (value == nullptr && usual) return *usual;
  if (value == nullptr) return wrong(key, "is missing");
  constexpr int kMost = std::numeric_limits<int>::max();
  const bool fits = value->is_number_unsigned() &&
                    value->get<std::uint64_t>() <= static_cast<std::uint64_t>(kMost);
  if (!fits) return wrong(key, "is no whole number within 0.." + std::to_string(kMost));
  return value->get<int>();
}

Result<double> ConfigKeys::number(const std::string& key, std::optional<double> usual) {
  const json* value = take(key);
  if (value == nullptr && usual) return *usual;
  if (value == nullptr) return wrong(key, "is missing");
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    return wrong(key, "is no number");
  }
  return value->get<double>();
}

Result<bool> ConfigKeys::flag(const std::string& key, bool usual) {
  const json* value = take(key);
  if (value == nullptr) return usual;
  if (!value->is_boolean()) return wrong(key, "is neither true nor false");
  return value->get<bool>();
}

Result<std::string> ConfigKeys::text(const std::string& key, const std::string& usual) {
  const json* value = take(key);
  if (value == nullptr) return usual;
  if (!value->is_string()) return wrong(key, "is no text");
  return value->get<std::string>();
}

Status ConfigKeys::must_be_off(const std::string& key, const std::string& why) {
  const json* value = take(key);
  if (value == nullptr || says_nothing(*value)) return Unit{};
  return wrong(key, why);
}

std::vector<std::string> ConfigKeys::unread() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items()) {
    if (!read_.contains(key) && !says_nothing(value)) keys.push_back(key);
  }
  return keys;
}

}  // namespace weir::huggingface
