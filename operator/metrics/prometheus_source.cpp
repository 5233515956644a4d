// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics/prometheus_source.h"

#include <algorithm>

#include "operator/metrics/answer.h"
#include "operator/metrics/promql.h"
#include "operator/metrics/samples.h"
#include "worker/base/log.h"
#include "worker/http/server.h"

namespace weir::metrics {
namespace {

using estimator::Freshness;
using estimator::LinkKey;
using std::chrono::seconds;

constexpr std::size_t kPoints = 32;     // as many as the estimator keeps
constexpr std::size_t kMostNamed = 64;  // jobs named in a query; if there are more, it is for all
constexpr int kUsualScrapes = 5;        // scrape intervals in the default window
constexpr seconds kServerTimeout{5};    // of the query in Prometheus
constexpr seconds kRequestTimeout{8};   // of the HTTP request
constexpr const char* kPath = "/api/v1/query_range";

void set_freshness(JobSamples& out, const JobQuery& job, const Believed& series, SystemTime now,
                   const std::string& namespace_label) {
  if (!out.last_sample) {
    out.freshness = Freshness::kNoSeries;
    out.detail = "Prometheus has no weir_step of this job's pods";
    if (series.other_namespace > 0) {
      out.detail += "; " + std::to_string(series.other_namespace) + " series without label " +
                    namespace_label + " of this namespace were dropped";
    }
    if (series.other_worker > 0) {
      out.detail +=
          "; " + std::to_string(series.other_worker) + " series of other pods were dropped";
    }
    return;
  }
  const auto age = std::chrono::duration_cast<seconds>(now - *out.last_sample);
  if (age > job.stale_after) {
    out.freshness = Freshness::kStale;
    out.detail = "the newest weir_step is " + std::to_string(age.count()) + " s old, the limit " +
                 std::to_string(job.stale_after.count()) + " s";
    return;
  }
  out.freshness = Freshness::kFresh;
}

}  // namespace

PrometheusSource::PrometheusSource(http::Transport* transport, Clock& clock, SourceOptions options)
    : transport_(transport), clock_(clock), options_(std::move(options)) {}

Result<Matrix> PrometheusSource::ask(const std::string& query, std::size_t points,
                                     std::stop_token stop) {
  // Points lie on a grid of steps, so that a point has the same time in every tick.
  const auto step = std::max<std::int64_t>(1, options_.scrape_interval.count());
  const auto now = std::chrono::duration_cast<seconds>(clock_.system_now().time_since_epoch());
  const std::int64_t end = now.count() / step * step;
  const std::int64_t start = end - static_cast<std::int64_t>(points - 1) * step;
  http::Request request{.method = http::Method::kPost,
                        .path = kPath,
                        .headers = {{"Content-Type", "application/x-www-form-urlencoded"},
                                    {"Accept", "application/json"}},
                        .body = "query=" + http::percent_encoded(query) +
                                "&start=" + std::to_string(start) + "&end=" + std::to_string(end) +
                                "&step=" + std::to_string(step) +
                                "&timeout=" + std::to_string(kServerTimeout.count()) + "s"};
  if (options_.headers) {
    for (auto& header : options_.headers()) request.headers.push_back(std::move(header));
  }

  const SteadyTime began = clock_.now();
  const auto observe = [this, began](const char* reason) {
    if (options_.observe) options_.observe(reason, clock_.now() - began);
  };
  auto answer = transport_->send(request, began + kRequestTimeout, std::move(stop));
  if (!answer) {
    observe("transport");
    return answer.error().with("query to Prometheus");
  }
  if (answer->status != 200) {
    observe("prometheus");
    return Error{Code::kUnavailable, refusal(*answer)};
  }
  auto matrix = decode_matrix(answer->body);
  observe(matrix ? "" : matrix.error().code == Code::kInvalid ? "decode" : "prometheus");
  if (matrix && !matrix->warnings.empty()) {
    log_debug("metrics", "Prometheus warns", {{"warnings", matrix->warnings}});
  }
  return matrix;
}

void PrometheusSource::read_window(const std::vector<const JobQuery*>& jobs, seconds window,
                                   bool of_all, Samples& out, std::stop_token stop) {
  QueryLabels labels{options_.namespace_label, options_.extra_matchers, {}};
  if (!of_all && jobs.size() <= kMostNamed) {
    for (const JobQuery* job : jobs) labels.jobs.push_back(job->key);
  }
  const auto matrix = ask(window_query(labels, window), kPoints, std::move(stop));
  const SystemTime now = clock_.system_now();
  for (const JobQuery* job : jobs) {
    JobSamples& samples = out[job->key];
    if (!matrix) {
      samples.freshness = Freshness::kQueryFailed;
      samples.detail = matrix.error().message;
      continue;
    }
    const Believed series = believed(*matrix, job->key, job->pods, options_.namespace_label);
    const auto last_seen = last_seen_of(series);
    for (const auto& [worker, time] : last_seen) {
      samples.last_sample = std::max(samples.last_sample.value_or(time), time);
    }
    samples.step = step_of(series, last_seen, now - job->stale_after);
    samples.scrapes = scrapes_of(series, last_seen, false);
    samples.sync_scrapes = scrapes_of(series, last_seen, true);
    samples.replicas = replica_scrapes_of(series, last_seen);
    samples.packed_part = packed_part_of(series);
    set_freshness(samples, *job, series, now, options_.namespace_label);
  }
}

void PrometheusSource::read_op_times(const std::vector<JobQuery>& jobs, Samples& out,
                                     std::stop_token stop) {
  const QueryLabels labels{options_.namespace_label, options_.extra_matchers, {}};
  const auto matrix = ask(op_time_query(labels), 1, std::move(stop));
  for (const auto& job : jobs) {
    JobSamples& samples = out[job.key];
    if (!matrix) {
      // The link rates are known nevertheless, and the profile's times replace these.
      samples.detail += (samples.detail.empty() ? "" : "; ") + matrix.error().message;
      continue;
    }
    struct Mean {
      double sum = 0;
      int count = 0;
    };
    std::map<int, std::pair<Mean, Mean>> stages;
    std::map<std::pair<std::string, int>, std::pair<double, double>> workers;
    for (const Series* series :
         believed(*matrix, job.key, job.pods, options_.namespace_label).series) {
      const auto stage = number(series->label("stage"));
      if (!stage || series->points.empty() || series->points.back().second <= 0) continue;
      auto& pair = stages[*stage];
      const bool forward = series->label("op") == "F";
      Mean& mean = forward ? pair.first : pair.second;
      auto& own = workers[{series->label("worker"), *stage}];
      (forward ? own.first : own.second) = series->points.back().second;
      mean.sum += series->points.back().second;
      ++mean.count;
    }
    for (const auto& [stage, pair] : stages) {
      if (pair.first.count == 0 || pair.second.count == 0) continue;
      samples.stage_seconds[stage] = {pair.first.sum / pair.first.count,
                                      pair.second.sum / pair.second.count};
    }
    for (const auto& [worker, own] : workers) {
      if (own.first > 0 && own.second > 0) samples.worker_seconds[worker] = own;
    }
  }
}

void PrometheusSource::ask_baselines(std::stop_token stop) {
  const SteadyTime now = clock_.now();
  if (baseline_asked_ && now - *baseline_asked_ < options_.baseline_interval) return;
  const QueryLabels labels{options_.namespace_label, options_.extra_matchers, {}};
  auto matrix = ask(baseline_query(labels), 1, std::move(stop));
  if (!matrix) {
    log_warn("metrics", "baselines unknown", {{"reason", matrix.error().message}});
    return;  // the next tick sends the query again
  }
  baseline_asked_ = now;
  new_baselines_.clear();
  for (Series& series : matrix->series) {
    new_baselines_[key_of(series)].series.push_back(std::move(series));
  }
  std::erase_if(baselines_,
                [this](const auto& entry) { return !new_baselines_.contains(entry.first); });
}

// The answer is about all jobs, but jobs have different ticks. So each job's part is kept until
// that job is fetched.
const std::map<LinkKey, double>& PrometheusSource::baselines_of(const JobQuery& job) {
  auto& known = baselines_[job.key];
  const auto fresh = new_baselines_.extract(job.key);
  if (!fresh) return known;
  known.clear();
  for (const Series* series :
       believed(fresh.mapped(), job.key, job.pods, options_.namespace_label).series) {
    const auto link = link_of(*series);
    if (!link || series->points.empty() || series->points.back().second <= 0) continue;
    double& rate = known[*link];
    rate = std::max(rate, series->points.back().second);  // a replaced worker has the same link
  }
  return known;
}

std::map<std::string, JobSamples> PrometheusSource::fetch(const std::vector<JobQuery>& jobs,
                                                          std::stop_token stop) {
  Samples out;
  if (transport_ == nullptr) {
    for (const auto& job : jobs) {
      out[job.key].freshness = Freshness::kNotConfigured;
      out[job.key].detail = "the operator has no --prometheus-url";
    }
    return out;
  }
  if (jobs.empty()) return out;
  // The default window comes first, for all jobs. Queries with another window name the jobs that
  // want it, so that a long window neither enlarges nor delays the query of the others.
  const seconds usual = kUsualScrapes * options_.scrape_interval;
  std::map<seconds, std::vector<const JobQuery*>> windows;
  for (const auto& job : jobs) {
    windows[job.window.count() > 0 ? job.window : usual].push_back(&job);
  }
  const auto common = windows.extract(usual);
  if (common) read_window(common.mapped(), usual, true, out, stop);
  for (const auto& [window, members] : windows) read_window(members, window, false, out, stop);

  // If Prometheus does not answer, this tick sends no further queries.
  const bool answers = std::ranges::any_of(
      out, [](const auto& entry) { return entry.second.freshness != Freshness::kQueryFailed; });
  if (answers) {
    read_op_times(jobs, out, stop);
    ask_baselines(stop);
  }
  for (const JobQuery& job : jobs) out[job.key].baseline = baselines_of(job);
  return out;
}

}  // namespace weir::metrics
