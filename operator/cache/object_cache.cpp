// SPDX-License-Identifier: Apache-2.0
#include "operator/cache/object_cache.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "operator/api/decode.h"
#include "operator/api/names.h"
#include "worker/base/log.h"

namespace weir::cache {
namespace {

// Key of the job that an object belongs to; "" = none.
template <class T>
std::string job_of(const T& object) {
  if constexpr (std::is_same_v<T, api::PipelineJob>) {
    return job_key(object.meta.namespace_name, object.meta.name);
  } else {
    const auto label = object.meta.labels.find(api::kJobName);
    return label == object.meta.labels.end() ? ""
                                             : job_key(object.meta.namespace_name, label->second);
  }
}

bool digits(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string job_key(const std::string& ns, const std::string& name) {
  return ns + "/" + name;
}

bool reached(const std::string& a, const std::string& b) {
  if (a == b) return true;
  if (!digits(a) || !digits(b)) return false;
  return a.size() != b.size() ? a.size() > b.size() : a > b;
}

ObjectCache::ObjectCache(Clock& clock, std::vector<std::string> scopes, bool with_nodes,
                         bool with_pod_groups)
    : clock_(clock),
      scopes_(std::move(scopes)),
      with_nodes_(with_nodes),
      with_pod_groups_(with_pod_groups) {}

void ObjectCache::on_change(OnChange listener) {
  listener_ = std::move(listener);
}

void ObjectCache::notify_listener(const std::map<std::string, bool>& changed) {
  if (!listener_) return;
  for (const auto& [key, first] : changed) {
    if (!key.empty()) listener_(key, first);
  }
}

// Updates the indices after a change of a table. before and now may be null.
template <class T>
void ObjectCache::index([[maybe_unused]] const T* before, [[maybe_unused]] const T* now,
                        [[maybe_unused]] const std::string& object_key) {
  if constexpr (std::is_same_v<T, api::Pod> || std::is_same_v<T, api::ConfigMap>) {
    auto& by_job = std::is_same_v<T, api::Pod> ? pods_of_ : maps_of_;
    if (before != nullptr) {
      const auto found = by_job.find(job_of(*before));
      if (found != by_job.end()) {
        found->second.erase(object_key);
        if (found->second.empty()) by_job.erase(found);
      }
    }
    if (now != nullptr) by_job[job_of(*now)][object_key];
  }
  if constexpr (std::is_same_v<T, api::PipelineJob>) {
    if (now == nullptr) expected_.erase(object_key);
  }
  if constexpr (std::is_same_v<T, api::Node>) node_table_.reset();
  if constexpr (std::is_same_v<T, api::Pod>) {
    if (before != nullptr) pod_keys_.erase(before->meta.uid);
    if (now != nullptr) pod_keys_[now->meta.uid] = object_key;
  }
}

template <class T, class Decode>
void ObjectCache::replace(Table<T>& table, const std::string& scope, Decode decode, bool per_job,
                          const std::vector<std::string>& items, const std::string& version) {
  std::map<std::string, std::shared_ptr<const T>> incoming;
  for (const std::string& item : items) {
    auto object = decode(item);
    if (!object) {
      log_error("cache", "unreadable object skipped", {{"error", object.error().message}});
      continue;
    }
    std::string key = job_key(object->meta.namespace_name, object->meta.name);
    incoming[std::move(key)] = std::make_shared<const T>(*std::move(object));
  }
  std::map<std::string, bool> changed;
  {
    const std::lock_guard lock(mutex_);
    const bool first = table.scopes_listed() < scopes_.size();
    std::vector<std::string> gone;
    for (const auto& [key, object] : table.all()) {
      const bool ours = scope.empty() || object->meta.namespace_name == scope;
      if (ours && !incoming.contains(key)) gone.push_back(key);
    }
    for (const std::string& key : gone) {
      const auto before = table.take(key);
      index<T>(before.get(), nullptr, key);
      if (per_job) changed[job_of(*before)] = first;
    }
    for (auto& [key, object] : incoming) {
      const auto before = table.put(key, object);
      index<T>(before.get(), object.get(), key);
      const bool same = before && before->meta.uid == object->meta.uid &&
                        before->meta.resource_version == object->meta.resource_version;
      if (per_job && !same) changed[job_of(*object)] = first;
    }
    table.relisted(scope, version);
    table.listed(scope);
  }
  notify_listener(changed);
}

template <class T, class Decode>
kube::Sink ObjectCache::sink(Table<T>& table, std::string scope, Decode decode, bool per_job) {
  kube::Sink out;
  out.replace = [=, this, &table](const std::vector<std::string>& items,
                                  const std::string& version) {
    replace(table, scope, decode, per_job, items, version);
  };
  out.compare = [=, this, &table](const std::vector<std::string>& items) {
    const std::lock_guard lock(mutex_);
    int differences = 0;
    std::size_t held = 0;
    for (const auto& [key, object] : table.all()) {
      if (scope.empty() || object->meta.namespace_name == scope) ++held;
    }
    std::size_t known = 0;
    for (const std::string& item : items) {
      const auto object = decode(item);
      if (!object) continue;
      const auto mine = table.get(job_key(object->meta.namespace_name, object->meta.name));
      if (mine) ++known;
      if (!mine || mine->meta.resource_version != object->meta.resource_version) ++differences;
    }
    return differences + static_cast<int>(held - known);
  };
  out.event = [=, this, &table](const api::WatchEvent& event) {
    if (event.type == "BOOKMARK") {
      const std::lock_guard lock(mutex_);
      return table.saw(scope, event.resource_version);
    }
    auto object = decode(event.object);
    if (!object) {
      log_error("cache", "unreadable object skipped", {{"error", object.error().message}});
      return;
    }
    const std::string key = job_key(object->meta.namespace_name, object->meta.name);
    std::map<std::string, bool> changed;
    if (per_job) changed[job_of(*object)] = false;
    {
      const std::lock_guard lock(mutex_);
      table.saw(scope, event.resource_version);
      const bool deleted = event.type == "DELETED";
      auto now = deleted ? nullptr : std::make_shared<const T>(*std::move(object));
      const auto before = deleted ? table.take(key) : table.put(key, now);
      index<T>(before.get(), now.get(), key);
      if (per_job && before) changed[job_of(*before)] = false;  // the label may have changed
    }
    notify_listener(changed);
  };
  out.connected = [=, this, &table](bool up) {
    const std::lock_guard lock(mutex_);
    table.connected(scope, up, clock_.now());
  };
  return out;
}

kube::Sink ObjectCache::jobs(const std::string& scope) {
  return sink(jobs_, scope, api::decode_job, true);
}
kube::Sink ObjectCache::pods(const std::string& scope) {
  return sink(pods_, scope, api::decode_pod, true);
}
kube::Sink ObjectCache::services(const std::string& scope) {
  return sink(services_, scope, api::decode_service, true);
}
kube::Sink ObjectCache::config_maps(const std::string& scope) {
  return sink(config_maps_, scope, api::decode_config_map, true);
}
kube::Sink ObjectCache::pod_groups(const std::string& scope) {
  return sink(pod_groups_, scope, api::decode_pod_group, true);
}
// A changed node wakes no job: conditions of nodes change all the time, and the pods' own status
// shows what matters.
kube::Sink ObjectCache::nodes_sink() {
  return sink(nodes_, "", api::decode_node, false);
}

JobView ObjectCache::view(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  JobView view;
  view.job = jobs_.get(key);
  if (const auto pods = pods_of_.find(key); pods != pods_of_.end()) {
    for (const auto& [pod, unused] : pods->second) view.pods.push_back(pods_.get(pod));
  }
  if (const auto maps = maps_of_.find(key); maps != maps_of_.end()) {
    for (const auto& [map, unused] : maps->second) {
      view.config_maps.push_back(config_maps_.get(map));
    }
  }
  view.service = services_.get(key);  // service and PodGroup have the job's name
  view.pod_group = pod_groups_.get(key);
  // A cluster without Volcano never delivers a version.
  view.pod_groups_watched = !pod_groups_.version(scope_of(key)).empty();
  return view;
}

std::vector<std::string> ObjectCache::job_keys() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, job] : jobs_.all()) keys.push_back(key);
  return keys;
}

std::size_t ObjectCache::job_count() const {
  const std::lock_guard lock(mutex_);
  return jobs_.all().size();
}

std::shared_ptr<const api::Pod> ObjectCache::pod_by_uid(const std::string& uid) const {
  const std::lock_guard lock(mutex_);
  const auto found = pod_keys_.find(uid);
  return found == pod_keys_.end() ? nullptr : pods_.get(found->second);
}

std::shared_ptr<const api::NodeTable> ObjectCache::nodes() const {
  const std::lock_guard lock(mutex_);
  if (!node_table_) {
    auto table = std::make_shared<api::NodeTable>();
    for (const auto& [key, node] : nodes_.all())
      table->emplace_hint(table->end(), node->meta.name, node);
    node_table_ = std::move(table);
  }
  return node_table_;
}

bool ObjectCache::synced() const {
  const std::lock_guard lock(mutex_);
  const auto all = [this](const auto& table) { return table.scopes_listed() >= scopes_.size(); };
  return all(jobs_) && all(pods_) && all(services_) && all(config_maps_) &&
         (!with_nodes_ || nodes_.scopes_listed() > 0) && (!with_pod_groups_ || all(pod_groups_));
}

bool ObjectCache::stale(std::chrono::seconds limit) const {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_.now();
  return jobs_.broken_longer_than(limit, now) || pods_.broken_longer_than(limit, now) ||
         services_.broken_longer_than(limit, now) || config_maps_.broken_longer_than(limit, now);
}

std::string ObjectCache::scope_of(const std::string& key) const {
  std::string of_job = key.substr(0, key.find('/'));
  return std::ranges::find(scopes_, of_job) == scopes_.end() ? "" : of_job;
}

std::string ObjectCache::version_of(const std::string& key, const std::string& kind) const {
  const std::string scope = scope_of(key);
  if (kind == "PipelineJob") return jobs_.version(scope);
  if (kind == "Pod") return pods_.version(scope);
  if (kind == "Service") return services_.version(scope);
  if (kind == "PodGroup") return pod_groups_.version(scope);
  return config_maps_.version(scope);
}

void ObjectCache::expect(const std::string& key, const std::string& kind, const std::string& name,
                         const std::string& resource_version) {
  static_cast<void>(name);                // versions are tracked per table, not per object
  if (!digits(resource_version)) return;  // not comparable; a repeated write is harmless
  const std::lock_guard lock(mutex_);
  const std::string seen = version_of(key, kind);
  if (kind == "PodGroup" && seen.empty()) return;  // PodGroups are not watched
  if (reached(seen, resource_version)) return;
  auto& list = expected_[key];
  std::erase_if(list, [&](const Expectation& old) {
    return old.kind == kind && reached(resource_version, old.version);
  });
  list.push_back({kind, resource_version, clock_.now()});
}

bool ObjectCache::caught_up(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = expected_.find(key);
  if (found == expected_.end()) return true;
  const SteadyTime now = clock_.now();
  return std::ranges::all_of(found->second, [&](const Expectation& expectation) {
    return reached(version_of(key, expectation.kind), expectation.version) ||
           now - expectation.since > kExpectationLimit;
  });
}

}  // namespace weir::cache
