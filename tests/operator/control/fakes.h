// SPDX-License-Identifier: Apache-2.0
// A cluster of one job in memory: cache, token reviews, Secret verbs.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "operator/cache/snapshot.h"
#include "operator/control/authenticator.h"
#include "operator/kube/client.h"

namespace weir::control_server {

inline std::shared_ptr<api::Pod> make_pod(const std::string& job, const std::string& job_uid,
                                          int index) {
  auto pod = std::make_shared<api::Pod>();
  pod->meta.name = job + "-a-" + std::to_string(index);
  pod->meta.namespace_name = "team-a";
  pod->meta.uid = job_uid + "-pod-" + std::to_string(index);
  pod->meta.labels = {{"weir.dev/job-name", job},
                      {"weir.dev/job-uid", job_uid},
                      {"weir.dev/worker-index", std::to_string(index)}};
  return pod;
}

class FakeCache final : public cache::Cache {
 public:
  void add_job(const std::string& name, const std::string& uid, std::int64_t plan_revision = 0) {
    const std::lock_guard lock(mutex_);
    auto job = std::make_shared<api::PipelineJob>();
    job->meta.name = name;
    job->meta.namespace_name = "team-a";
    job->meta.uid = uid;
    job->status.plan.revision = plan_revision;
    jobs_["team-a/" + name].job = job;
  }
  void annotate(const std::string& name, const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    auto job = std::make_shared<api::PipelineJob>(*jobs_["team-a/" + name].job);
    job->meta.annotations[key] = value;
    jobs_["team-a/" + name].job = job;
  }
  void remove_job(const std::string& name) {
    const std::lock_guard lock(mutex_);
    jobs_.erase("team-a/" + name);
  }
  void mark_deleting(const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto job = std::make_shared<api::PipelineJob>(*jobs_["team-a/" + name].job);
    job->meta.deleting = api::Time{};
    jobs_["team-a/" + name].job = job;
  }
  void name_coordinator(const std::string& name, const api::CoordinatorStatus& coordinator) {
    const std::lock_guard lock(mutex_);
    auto job = std::make_shared<api::PipelineJob>(*jobs_["team-a/" + name].job);
    job->status.coordinator = coordinator;
    jobs_["team-a/" + name].job = job;
  }
  void remove_pod(const std::string& uid) {
    const std::lock_guard lock(mutex_);
    pods_.erase(uid);
  }
  void add_pod(std::shared_ptr<api::Pod> pod) {
    const std::lock_guard lock(mutex_);
    pods_[pod->meta.uid] = std::move(pod);
  }
  void add_plan(const std::string& job, const std::string& owner_uid, const std::string& revision,
                const std::string& text) {
    const std::lock_guard lock(mutex_);
    auto map = std::make_shared<api::ConfigMap>();
    map->meta.name = job + "-plan-" + revision;
    map->meta.owner_uid = owner_uid;
    map->data["plan.json"] = text;
    jobs_["team-a/" + job].config_maps.push_back(map);
  }
  void set_synced(bool synced) {
    const std::lock_guard lock(mutex_);
    synced_ = synced;
  }

  cache::JobView view(const std::string& key) const override {
    const std::lock_guard lock(mutex_);
    const auto found = jobs_.find(key);
    if (found == jobs_.end()) return {};
    cache::JobView view = found->second;
    for (const auto& [uid, pod] : pods_) {
      if (pod->meta.labels["weir.dev/job-name"] == view.job->meta.name) view.pods.push_back(pod);
    }
    return view;
  }
  std::vector<std::string> job_keys() const override { return {"team-a/gpt"}; }
  std::size_t job_count() const override { return 1; }
  std::shared_ptr<const api::Pod> pod_by_uid(const std::string& uid) const override {
    const std::lock_guard lock(mutex_);
    const auto found = pods_.find(uid);
    return found == pods_.end() ? nullptr : found->second;
  }
  std::shared_ptr<const api::NodeTable> nodes() const override {
    return std::make_shared<const api::NodeTable>();
  }
  bool synced() const override {
    const std::lock_guard lock(mutex_);
    return synced_;
  }
  bool stale(std::chrono::seconds) const override { return false; }
  void expect(const std::string&, const std::string&, const std::string&,
              const std::string&) override {}
  bool caught_up(const std::string&) const override { return true; }

 private:
  mutable std::mutex mutex_;  // guards all below
  std::map<std::string, cache::JobView> jobs_;
  std::map<std::string, std::shared_ptr<api::Pod>> pods_;
  bool synced_ = true;
};

// The token is "<pod name>/<pod uid>"; anything else is rejected.
class FakeReviewer final : public TokenReviewer {
 public:
  Result<Identity> review(const std::string& token) override {
    const std::lock_guard lock(mutex_);
    ++asked;
    if (fails) return *fails;
    const auto slash = token.find('/');
    if (slash == token.npos) return Error{Code::kUnauthorized, "the token was rejected"};
    return Identity{token.substr(0, slash), token.substr(slash + 1)};
  }
  std::mutex mutex_;  // guards the two below
  int asked = 0;
  std::optional<Error> fails;
};

inline std::string token_of(const api::Pod& pod) {
  return pod.meta.name + "/" + pod.meta.uid;
}

}  // namespace weir::control_server
