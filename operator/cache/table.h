// SPDX-License-Identifier: Apache-2.0
// The objects of one resource, by "namespace/name". Not thread-safe: ObjectCache guards it.
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

// True when resource version a is at least b: big decimal numbers (guaranteed by Kubernetes 1.35
// within one resource); other texts only when equal.
bool reached(const std::string& a, const std::string& b);

template <class T>
class Table {
 public:
  using Object = std::shared_ptr<const T>;

  // Answers what was there before under this key.
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

  // The newest version that events, bookmarks or lists have brought.
  void saw(const std::string& version) {
    if (!version.empty() && !reached(version_, version)) version_ = version;
  }
  const std::string& version() const { return version_; }
  void relisted(const std::string& version) { version_ = version; }  // may go back (etcd restored)

  // By scope (a watched namespace, "" = all).
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
  std::string version_;
  std::set<std::string> listed_;
  std::map<std::string, SteadyTime> broken_;
};

}  // namespace weir::cache
