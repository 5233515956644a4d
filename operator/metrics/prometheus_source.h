// SPDX-License-Identifier: Apache-2.0
// Samples from Prometheus: one POST query_range per distinct window and tick for all jobs, one more
// for op times, every 5 min one for the baselines. An empty result, NaN and Inf are Unknown, never
// 0. Series of another namespace, or of a worker that is no pod of the job, are dropped. One caller
// at a time; blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "operator/estimator/estimates.h"
#include "operator/estimator/replica_model.h"
#include "operator/metrics/matrix.h"
#include "worker/base/clock.h"
#include "worker/http/transport.h"

namespace weir::metrics {

struct JobQuery {
  std::string key;                 // "namespace/name"
  std::chrono::seconds window{0};  // 0: five scrape intervals
  std::chrono::seconds stale_after{60};
  std::set<std::string> pods;  // names of the job's pods
};

struct JobSamples {
  estimator::Freshness freshness = estimator::Freshness::kNoSeries;
  std::string detail;  // for people: which query failed and why
  // Oldest first, the last 32 grid points with traffic: of links between stages, between replicas.
  std::vector<estimator::Scrape> scrapes, sync_scrapes;
  std::optional<SystemTime> last_sample;  // newest weir_step of any worker
  // The highest weir_step of the workers that were scraped within stale_after.
  std::optional<std::int64_t> step;
  // Seconds of one forward and backward per stage, mean over 5 min and replicas.
  std::map<int, std::pair<double, double>> stage_seconds;
  // The same by pod and stage.
  std::map<std::pair<std::string, int>, std::pair<double, double>> worker_seconds;
  std::vector<estimator::ReplicaScrape> replicas;  // oldest first; empty with one replica
  // 95 % quantile of goodput over 1 h, bytes per second; kept between the questions.
  std::map<estimator::LinkKey, double> baseline;
};

struct SourceOptions {
  std::chrono::seconds scrape_interval{2};    // step of the queries
  std::string namespace_label = "namespace";  // "" = off
  std::string extra_matchers;                 // "cluster=\"a\"", added to every selector
  std::chrono::seconds baseline_interval{300};
  // Further headers, such as Authorization and those of tenants; asked before each request.
  std::function<http::Headers()> headers;
  // After each request: reason "" = worked, else "transport", "prometheus" (an error status) or
  // "decode".
  std::function<void(const char* reason, std::chrono::nanoseconds took)> observe;
};

class PrometheusSource {
 public:
  // transport null: no Prometheus configured. Both must outlive the source.
  PrometheusSource(http::Transport* transport, Clock& clock, SourceOptions options);

  // One tick: an entry for every job asked for.
  std::map<std::string, JobSamples> fetch(const std::vector<JobQuery>& jobs, std::stop_token stop);

 private:
  using Samples = std::map<std::string, JobSamples>;
  Result<Matrix> ask(const std::string& query, std::size_t points, std::stop_token stop);
  void read_window(const std::vector<const JobQuery*>& jobs, std::chrono::seconds window,
                   bool of_all, Samples& out, std::stop_token stop);
  void read_op_times(const std::vector<JobQuery>& jobs, Samples& out, std::stop_token stop);
  void ask_baselines(std::stop_token stop);
  const std::map<estimator::LinkKey, double>& baselines_of(const JobQuery& job);

  http::Transport* const transport_;
  Clock& clock_;
  const SourceOptions options_;
  std::optional<SteadyTime> baseline_asked_;
  // By job key.
  std::map<std::string, std::map<estimator::LinkKey, double>> baselines_;
  std::map<std::string, Matrix> new_baselines_;  // as answered, of jobs not asked for since
};

}  // namespace weir::metrics
