// SPDX-License-Identifier: Apache-2.0
// The keys of one JSON object, each read once by its name, so that those that nobody reads can be
// told. Errors are kInvalid and begin with config.json and the key. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "worker/base/result.h"

namespace weir::huggingface {

class ConfigKeys {
 public:
  // path: "" or "rope_scaling."
  explicit ConfigKeys(nlohmann::json object, std::string path = "")
      : object_(std::move(object)), path_(std::move(path)) {}

  bool has(const std::string& key) const { return object_.contains(key); }
  // The value; null if it is missing or null. It counts as read.
  const nlohmann::json* take(const std::string& key);
  // Without `usual` the key must be there.
  Result<int> whole(const std::string& key, std::optional<int> usual = std::nullopt);
  Result<double> number(const std::string& key, std::optional<double> usual = std::nullopt);
  Result<bool> flag(const std::string& key, bool usual);
  Result<std::string> text(const std::string& key, const std::string& usual);
  // kInvalid unless the value is missing, null, false, 0, "", [] or {}.
  Status must_be_off(const std::string& key, const std::string& why);

  // Keys that nobody has read and whose values say something.
  std::vector<std::string> unread() const;
  Error wrong(const std::string& key, const std::string& what) const;

 private:
  nlohmann::json object_;
  std::string path_;
  std::set<std::string> read_;
};

}  // namespace weir::huggingface
