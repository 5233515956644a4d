// SPDX-License-Identifier: Apache-2.0
// The metrics thread: it fetches samples of all running jobs whose tick is due, updates each job's
// link model, publishes its Estimates and wakes the job. Only the leader runs it.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "operator/cache/snapshot.h"
#include "operator/estimator/estimates.h"
#include "operator/estimator/link_model.h"
#include "operator/estimator/replica_model.h"
#include "operator/metrics/prometheus_source.h"
#include "worker/base/clock.h"

namespace weir::controller {

class MetricsLoop {
 public:
  // fetch: PrometheusSource::fetch. configured: false = every job's freshness is NotConfigured.
  using Fetch = std::function<std::map<std::string, metrics::JobSamples>(
      const std::vector<metrics::JobQuery>& jobs, std::stop_token stop)>;
  MetricsLoop(Fetch fetch, bool configured, cache::Cache& cache, Clock& clock,
              std::function<void(const std::string& key)> wake);

  void run(std::stop_token stop);
  // Fetches what is due now; returns when the next job is due. Public for tests.
  SteadyTime tick(std::stop_token stop);

  // Thread-safe. For an unknown job the estimates say that nothing is measured.
  estimator::Estimates estimates(const std::string& key, const std::string& job_uid) const;

 private:
  struct Job {
    std::string uid;
    std::int64_t seen_revision = 0;
    SteadyTime due{};
    estimator::LinkModelState model, sync_model;  // links between stages, between replicas
    estimator::ReplicaModelState replicas;
    std::int64_t replicas_revision = 0;  // plan revision during the measurement of the replicas
    double packed_part = 1;  // newest one, which outlasts plans whose sums are not packed
    std::optional<estimator::Progress> progress;
  };
  std::vector<metrics::JobQuery> due_queries(SteadyTime now, SteadyTime& next);
  void measure_replicas_of(const api::PipelineJob& job, Job& state) const;
  void take(const std::string& key, const metrics::JobQuery& query,
            const metrics::JobSamples& samples);

  const Fetch fetch_;
  const bool configured_;
  cache::Cache& cache_;
  Clock& clock_;
  const std::function<void(const std::string&)> wake_;
  std::map<std::string, Job> jobs_;  // only the metrics thread uses it

  mutable std::mutex estimates_mutex_;  // guards estimates_: by key, with the job's uid
  std::map<std::string, std::pair<std::string, estimator::Estimates>> estimates_;
};

}  // namespace weir::controller
