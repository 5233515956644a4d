// SPDX-License-Identifier: Apache-2.0
// Local copy of the watched objects, published as immutable snapshots. Filled by the reflectors,
// read by the controller and the control API. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"

namespace weir::cache {

// "namespace/name", as the work queue's key.
std::string job_key(const std::string& ns, const std::string& name);

// Everything the cache holds of one job; shared and immutable.
struct JobView {
  std::shared_ptr<const api::PipelineJob> job;        // null: gone
  std::vector<std::shared_ptr<const api::Pod>> pods;  // by label weir.dev/job-name, sorted by name
  std::vector<std::shared_ptr<const api::ConfigMap>> config_maps;  // <job>-control and <job>-plan-N
  std::shared_ptr<const api::Service> service;
  std::shared_ptr<const api::PodGroup> pod_group;  // of the job's name
  bool pod_groups_watched = false;                 // false: null means nothing
};

class Cache {
 public:
  virtual ~Cache() = default;
  virtual JobView view(const std::string& key) const = 0;
  virtual std::vector<std::string> job_keys() const = 0;
  virtual std::size_t job_count() const = 0;
  virtual std::shared_ptr<const api::Pod> pod_by_uid(const std::string& uid) const = 0;
  virtual std::shared_ptr<const api::NodeTable> nodes() const = 0;  // never null
  virtual bool synced() const = 0;  // every resource was listed once
  virtual bool stale(
      std::chrono::seconds limit) const = 0;  // some watch has been broken for longer
  // After an own write: reconcile waits until the cache has seen this version of that object.
  virtual void expect(const std::string& key, const std::string& kind, const std::string& name,
                      const std::string& resource_version) = 0;
  virtual bool caught_up(
      const std::string& key) const = 0;  // all expectations met, or older than 5 min
};

}  // namespace weir::cache
