// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/metrics_loop.h"

#include <algorithm>
#include <utility>

#include "operator/api/validate.h"

namespace weir::controller {
namespace {

constexpr std::chrono::seconds kLongestSleep{5};   // the smallest evaluationIntervalSeconds
constexpr std::chrono::seconds kShortestSleep{1};  // jobs that are due within it share the queries

bool has_ended(const api::PipelineJob& job) {
  return std::ranges::any_of(job.status.conditions, [](const api::Condition& condition) {
    return (condition.type == "Complete" || condition.type == "Failed") &&
           condition.status == "True";
  });
}

// Retune, Manual and Compress keep members, rank map and cut, so the link samples stay valid: rates
// are those of the wire, whatever it carries.
bool keeps_generation(const std::string& trigger) {
  return trigger == "Retune" || trigger == "Manual" || trigger == "Compress";
}

}  // namespace

MetricsLoop::MetricsLoop(Fetch fetch, bool configured, cache::Cache& cache, Clock& clock,
                         std::function<void(const std::string&)> wake)
    : fetch_(std::move(fetch)),
      configured_(configured),
      cache_(cache),
      clock_(clock),
      wake_(std::move(wake)) {}

void MetricsLoop::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const SteadyTime next = tick(stop), now = clock_.now();
    if (!clock_.sleep_until(std::clamp(next, now + kShortestSleep, now + kLongestSleep), stop))
      return;
  }
}

std::vector<metrics::JobQuery> MetricsLoop::due_queries(SteadyTime now, SteadyTime& next) {
  std::vector<metrics::JobQuery> queries;
  std::map<std::string, Job> kept;
  for (const std::string& key : cache_.job_keys()) {
    const cache::JobView view = cache_.view(key);
    if (!view.job || view.job->status.plan.revision == 0 || has_ended(*view.job)) continue;
    const api::PipelineJob& job = *view.job;
    Job state = std::move(jobs_[key]);
    if (state.uid != job.meta.uid) state = Job{.uid = job.meta.uid};
    if (job.status.plan.revision != state.seen_revision) {
      state.seen_revision = job.status.plan.revision;
      if (!keeps_generation(job.status.plan.trigger)) state.model = state.sync_model = {};
    }
    measure_replicas_of(job, state);
    const std::chrono::seconds interval(job.spec.adaptation.evaluation_interval_seconds);
    if (now >= state.due) {
      metrics::JobQuery query;
      query.key = key;
      query.window = std::chrono::seconds(job.spec.adaptation.window_seconds);
      query.stale_after = std::chrono::seconds(job.spec.adaptation.stale_after_seconds);
      for (const auto& pod : view.pods) {
        if (pod->meta.owner_uid == job.meta.uid) query.pods.insert(pod->meta.name);
      }
      queries.push_back(std::move(query));
      state.due = now + interval;
    }
    next = std::min(next, state.due);
    kept[key] = std::move(state);
  }
  jobs_ = std::move(kept);
  return queries;
}

// Step times depend on the plan, so measurements start again whenever another plan has been
// applied. Nothing is measured while a switch is in progress.
void MetricsLoop::measure_replicas_of(const api::PipelineJob& job, Job& state) const {
  const auto* replan = api::find_condition(job.status.conditions, "ReplanInProgress");
  const bool settled = replan != nullptr && replan->status == "False";
  const std::int64_t revision = settled ? job.status.plan.applied_revision : 0;
  if (revision == state.replicas_revision) return;
  state.replicas_revision = revision;
  state.replicas = {};
  state.replicas.last_time = clock_.system_now();
}

SteadyTime MetricsLoop::tick(std::stop_token stop) {
  SteadyTime next = SteadyTime::max();
  if (!configured_) return next;
  const auto queries = due_queries(clock_.now(), next);
  if (!queries.empty()) {
    const auto answers = fetch_(queries, stop);
    if (stop.stop_requested()) return next;
    for (const metrics::JobQuery& query : queries) {
      const auto samples = answers.find(query.key);
      if (samples != answers.end()) take(query.key, query, samples->second);
    }
  }
  {
    const std::lock_guard lock(estimates_mutex_);
    std::erase_if(estimates_, [&](const auto& entry) { return !jobs_.contains(entry.first); });
  }
  for (const metrics::JobQuery& query : queries) wake_(query.key);
  return next;
}

void MetricsLoop::take(const std::string& key, const metrics::JobQuery& query,
                       const metrics::JobSamples& samples) {
  Job& job = jobs_[key];
  const SystemTime now = clock_.system_now();
  estimator::add_scrapes(job.model, samples.scrapes);
  estimator::add_scrapes(job.sync_model, samples.sync_scrapes);
  for (estimator::LinkModelState* model : {&job.model, &job.sync_model}) {
    if (!samples.baseline.empty()) model->baseline = samples.baseline;
  }
  job.model.stage_seconds = samples.stage_seconds;
  estimator::add_replica_scrapes(job.replicas, samples.replicas);
  estimator::Estimates estimates =
      estimator::estimates_of(job.model, samples.freshness, now, query.stale_after);
  estimator::add_sync_links(estimates, job.sync_model, samples.freshness, now, query.stale_after);
  if (!samples.detail.empty()) estimates.detail = samples.detail;
  if (!estimates.last_sample) estimates.last_sample = samples.last_sample;
  estimates.worker_seconds = samples.worker_seconds;
  estimates.replicas = estimator::replica_estimates_of(job.replicas, now, query.stale_after);
  estimates.replicas_revision = job.replicas_revision;
  estimates.packed_part = job.packed_part = samples.packed_part.value_or(job.packed_part);
  if (samples.step && (!job.progress || job.progress->step != *samples.step)) {
    job.progress = estimator::Progress{*samples.step, now, now};
  }
  if (samples.step) {
    job.progress->seen = now;
    estimates.progress = job.progress;
  }
  const std::lock_guard lock(estimates_mutex_);
  estimates_[key] = {job.uid, std::move(estimates)};
}

estimator::Estimates MetricsLoop::estimates(const std::string& key,
                                            const std::string& job_uid) const {
  {
    const std::lock_guard lock(estimates_mutex_);
    const auto found = estimates_.find(key);
    if (found != estimates_.end() && found->second.first == job_uid) return found->second.second;
  }
  estimator::Estimates none;
  none.freshness =
      configured_ ? estimator::Freshness::kNoSeries : estimator::Freshness::kNotConfigured;
  none.detail = configured_ ? "nothing measured yet" : "the operator runs without --prometheus-url";
  return none;
}

}  // namespace weir::controller
