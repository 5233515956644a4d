// SPDX-License-Identifier: Apache-2.0
// The Cache that reflectors fill. It has one table per resource; pods and ConfigMaps are indexed by
// job. Thread-safe. Listeners are called without the lock on the watch's thread and must not block.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "operator/cache/snapshot.h"
#include "operator/cache/table.h"
#include "operator/kube/reflector.h"
#include "worker/base/clock.h"

namespace weir::cache {

constexpr std::chrono::minutes kExpectationLimit{5};  // operator/kube/README.md "Own writes"

class ObjectCache final : public Cache {
 public:
  // scopes: watched namespaces; {""} = all. with_nodes, with_pod_groups: nodes, and PodGroups of
  // Volcano, are watched, so synced() waits for them.
  ObjectCache(Clock& clock, std::vector<std::string> scopes, bool with_nodes,
              bool with_pod_groups = false);

  // Called with the job's key when the job or one of its objects has changed. first: the object
  // comes from the first list, which has low priority. Set the listener before any sink is used.
  using OnChange = std::function<void(const std::string& key, bool first)>;
  void on_change(OnChange listener);

  kube::Sink jobs(const std::string& scope);
  kube::Sink pods(const std::string& scope);
  kube::Sink services(const std::string& scope);
  kube::Sink config_maps(const std::string& scope);
  kube::Sink pod_groups(const std::string& scope);
  kube::Sink nodes_sink();

  JobView view(const std::string& key) const override;
  std::vector<std::string> job_keys() const override;
  std::size_t job_count() const override;
  std::shared_ptr<const api::Pod> pod_by_uid(const std::string& uid) const override;
  std::shared_ptr<const api::NodeTable> nodes() const override;
  bool synced() const override;
  bool stale(std::chrono::seconds limit) const override;
  void expect(const std::string& key, const std::string& kind, const std::string& name,
              const std::string& resource_version) override;
  bool caught_up(const std::string& key) const override;

 private:
  struct Expectation {
    std::string kind, version;
    SteadyTime since{};
  };

  template <class T, class Decode>
  kube::Sink sink(Table<T>& table, std::string scope, Decode decode, bool per_job);
  template <class T, class Decode>
  void replace(Table<T>& table, const std::string& scope, Decode decode, bool per_job,
               const std::vector<std::string>& items, const std::string& version);
  template <class T>
  void index(const T* before, const T* now, const std::string& object_key);
  // Scope of the watch that delivers the objects of this job.
  std::string scope_of(const std::string& key) const;
  std::string version_of(const std::string& key, const std::string& kind) const;
  void notify_listener(const std::map<std::string, bool>& changed);

  Clock& clock_;
  const std::vector<std::string> scopes_;
  const bool with_nodes_, with_pod_groups_;
  OnChange listener_;

  mutable std::mutex mutex_;  // guards all below
  Table<api::PipelineJob> jobs_;
  Table<api::Pod> pods_;
  Table<api::Service> services_;
  Table<api::ConfigMap> config_maps_;
  Table<api::Node> nodes_;
  Table<api::PodGroup> pod_groups_;
  // Copy of nodes_ for readers; null = nodes() makes it.
  mutable std::shared_ptr<const api::NodeTable> node_table_;
  // Object keys by job key; the inner values are unused.
  std::map<std::string, std::map<std::string, std::string>> pods_of_, maps_of_;
  std::map<std::string, std::string> pod_keys_;               // by uid
  std::map<std::string, std::vector<Expectation>> expected_;  // by job key
};

}  // namespace weir::cache
