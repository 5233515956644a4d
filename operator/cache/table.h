// SPDX-License-Identifier: Apache-2.0
// The objects of one resource by "namespace/name". Not thread-safe: ObjectCache guards it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/base/clock.h"

namespace weir::cache {

// Whether resource version a is at least b. Versions are decimal numbers of any length (Kubernetes
// 1.35 guarantees their order within one resource); other texts must be equal.
bool reached(const std::string& a, const std::string& b);

template <class T>
class Table {
 public:
  using Object = std::shared_ptr<const T>;

  // Returns the object that the key had before, or null.
  Object put(const std::string& key, Object object) {
    Object& place = objects_[key];
    Object before = std::move(place);
    place = std::move(object);
    return before;
  }
  Object take(const std::string& key) {
    const auto found = objects_.find(key);
    if (found == objects_.end()) return nullptr;
    Object before = std::move(found->second);
    objects_.erase(found);
    return before;
  }
  Object get(const std::string& key) const {
    const auto found = objects_.find(key);
    return found == objects_.end() ? nullptr : found->second;
  }
  const std::map<std::string, Object>& all() const { return objects_; }

  // The functions below are per scope (a watched namespace, "" = all). Each scope has its own
  // watch, which may be behind the others.
  // Records a version from an event or a bookmark; version() is the newest, "" = none yet.
  void saw(const std::string& scope, const std::string& version) {
    std::string& newest = versions_[scope];
    if (!version.empty() && !reached(newest, version)) newest = version;
  }
  std::string version(const std::string& scope) const {
    const auto found = versions_.find(scope);
    return found == versions_.end() ? "" : found->second;
  }
  void relisted(const std::string& scope, const std::string& version) {
    versions_[scope] = version;  // may be smaller if etcd was restored from a backup
  }
  void listed(const std::string& scope) { listed_.insert(scope); }
  std::size_t scopes_listed() const { return listed_.size(); }
  void connected(const std::string& scope, bool up, SteadyTime now) {
    if (up) {
      broken_.erase(scope);
    } else {
      broken_.try_emplace(scope, now);
    }
  }
  bool broken_longer_than(std::chrono::seconds limit, SteadyTime now) const {
    for (const auto& [scope, since] : broken_) {
      if (now - since > limit) return true;
    }
    return false;
  }

 private:
  std::map<std::string, Object> objects_;
  std::map<std::string, std::string> versions_;
  std::set<std::string> listed_;
  std::map<std::string, SteadyTime> broken_;
};

}  // namespace weir::cache
