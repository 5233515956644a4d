// SPDX-License-Identifier: Apache-2.0
// Reads samples from Prometheus. Each tick sends one POST query_range per distinct window for all
// jobs, one for op times, and every 5 min one for the baselines. An empty result, NaN and Inf count
// as unknown, never as 0. Series of another namespace, or of a worker that is no pod of the job,
// are dropped. Calls block; only one caller at a time.
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
  std::chrono::seconds window{0};  // 0 = five scrape intervals
  std::chrono::seconds stale_after{60};
  std::set<std::string> pods;  // names of the job's pods
};

struct JobSamples {
  estimator::Freshness freshness = estimator::Freshness::kNoSeries;
  std::string detail;  // which query failed and why, for messages
  // Grid points with traffic among the last 32, oldest first: of links between stages, and of
  // links between replicas.
  std::vector<estimator::Scrape> scrapes, sync_scrapes;
  std::optional<SystemTime> last_sample;  // time of the newest weir_step of any worker
  // Highest weir_step among workers that were scraped within stale_after.
  std::optional<std::int64_t> step;
  // Seconds of one forward and one backward by stage, mean over 5 min and replicas.
  std::map<int, std::pair<double, double>> stage_seconds;
  // The same by pod and stage.
  std::map<std::pair<std::string, int>, std::pair<double, double>> worker_seconds;
  std::vector<estimator::ReplicaScrape> replicas;  // oldest first; empty if there is one replica
  std::optional<double> packed_part;  // of estimator::Estimates; nothing = no sums are packed now
  // 95 % quantile of goodput over 1 h, bytes per second, from the last query that succeeded.
  std::map<estimator::LinkKey, double> baseline;
};

struct SourceOptions {
  std::chrono::seconds scrape_interval{2};    // also the step of the queries
  std::string namespace_label = "namespace";  // "" = namespaces are not checked
  std::string extra_matchers;                 // added to every selector, e.g. cluster="a"
  std::chrono::seconds baseline_interval{300};
  // Called before each request for further headers, such as Authorization or a tenant's.
  std::function<http::Headers()> headers;
  // Called after each request. reason: "" = success, else "transport", "prometheus" (an error
  // status) or "decode".
  std::function<void(const char* reason, std::chrono::nanoseconds took)> observe;
};

class PrometheusSource {
 public:
  // transport: null = no Prometheus is configured. transport and clock must outlive the source.
  PrometheusSource(http::Transport* transport, Clock& clock, SourceOptions options);

  // Runs the queries of one tick. The answer has an entry for every job.
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
  // Both by job key.
  std::map<std::string, std::map<estimator::LinkKey, double>> baselines_;
  std::map<std::string, Matrix> new_baselines_;  // the last answer, for jobs not fetched after it
};

}  // namespace weir::metrics
