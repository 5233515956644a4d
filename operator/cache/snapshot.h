// SPDX-License-Identifier: Apache-2.0
// A local copy of the watched objects, read as immutable snapshots. Reflectors fill it; the
// controller and the control API read it. Thread-safe.
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

// "namespace/name"; also the key of the work queue.
std::string job_key(const std::string& ns, const std::string& name);

// Everything that the cache has about one job; shared and immutable.
struct JobView {
  std::shared_ptr<const api::PipelineJob> job;        // null = it does not exist
  std::vector<std::shared_ptr<const api::Pod>> pods;  // by label weir.dev/job-name, sorted by name
  std::vector<std::shared_ptr<const api::ConfigMap>> config_maps;  // <job>-control and <job>-plan-N
  std::shared_ptr<const api::Service> service;
  std::shared_ptr<const api::PodGroup> pod_group;  // the one with the job's name
  bool pod_groups_watched = false;                 // false: pod_group is unknown, not absent
};

class Cache {
 public:
  virtual ~Cache() = default;
  virtual JobView view(const std::string& key) const = 0;
  virtual std::vector<std::string> job_keys() const = 0;
  virtual std::size_t job_count() const = 0;
  virtual std::shared_ptr<const api::Pod> pod_by_uid(const std::string& uid) const = 0;
  virtual std::shared_ptr<const api::NodeTable> nodes() const = 0;  // never null
  // Every resource has been listed at least once.
  virtual bool synced() const = 0;
  // Some watch has been broken for longer than the limit.
  virtual bool stale(std::chrono::seconds limit) const = 0;
  // Call it after an own write. caught_up(key) is false until the cache has seen this version of
  // the object, or for 5 min.
  virtual void expect(const std::string& key, const std::string& kind, const std::string& name,
                      const std::string& resource_version) = 0;
  virtual bool caught_up(const std::string& key) const = 0;
};

}  // namespace weir::cache
