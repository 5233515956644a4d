// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/loop_metrics.h"

#include <algorithm>
#include <cmath>

#include "operator/api/validate.h"

namespace weir::sim {
namespace {

constexpr double kWindow = 10;                   // s: five scrapes
constexpr double kOpWindow = 300, kHour = 3600;  // s, operator/metrics/promql.cpp
constexpr double kBaselineEvery = 300;           // s
constexpr double kBaselineQuantile = 0.95;
constexpr std::chrono::seconds kStale{60};
constexpr std::size_t kAsked = 64;  // scrapes, at most

}  // namespace

estimator::SystemTime SimulatedMetrics::wall(double time) {
  constexpr std::chrono::hours kBegin(24 * 365 * 56);
  return estimator::SystemTime(kBegin) + std::chrono::microseconds(std::llround(1e6 * time));
}

void SimulatedMetrics::scrape(double time) {
  scraped_.push_back({time, workers_.links(), workers_.ops()});
  while (scraped_.size() > 1 && scraped_[1].time <= time - kOpWindow) scraped_.pop_front();
  for (const bool sync : {false, true}) {
    auto& fresh = sync ? fresh_sync_ : fresh_;
    fresh.push_back(rates_at(scraped_.back(), sync));
    if (fresh.size() > kAsked) fresh.erase(fresh.begin());
  }
  fresh_replicas_.push_back({wall(time), workers_.replicas()});
  if (fresh_replicas_.size() > kAsked) fresh_replicas_.erase(fresh_replicas_.begin());
}

const SimulatedMetrics::Scraped& SimulatedMetrics::before(double time) const {
  auto found = scraped_.begin();
  while (std::next(found) != scraped_.end() && std::next(found)->time <= time) ++found;
  return *found;
}

estimator::Scrape SimulatedMetrics::rates_at(const Scraped& now, bool sync) {
  const Scraped& old = before(now.time - kWindow);
  estimator::Scrape scrape{wall(now.time), {}};
  for (const auto& [name, counter] : now.links) {
    if ((name.link.direction == estimator::Direction::kSync) != sync) continue;
    const auto known = old.links.find(name);
    const double bytes = counter.bytes - (known == old.links.end() ? 0 : known->second.bytes);
    const double busy = counter.busy - (known == old.links.end() ? 0 : known->second.busy);
    if (busy <= 0) continue;
    const double rate = bytes / busy * std::exp(workers_.shape().rate_noise * random_.normal());
    scrape.links.push_back({name.link, name.from, name.to, rate, 1e-4});
    goodput_[name].emplace_back(now.time, rate);
  }
  return scrape;
}

void SimulatedMetrics::find_baselines(double time) {
  if (time - baselines_at_ < kBaselineEvery) return;
  baselines_at_ = time;
  baseline_.clear();
  for (auto& [name, points] : goodput_) {
    while (!points.empty() && points.front().first < time - kHour) points.pop_front();
    if (points.empty()) continue;
    std::vector<double> rates;
    for (const auto& [at, rate] : points) rates.push_back(rate);
    const auto at =
        static_cast<std::ptrdiff_t>(kBaselineQuantile * static_cast<double>(rates.size() - 1));
    std::nth_element(rates.begin(), rates.begin() + at, rates.end());
    double& baseline = baseline_[name.link];
    baseline = std::max(baseline, rates[static_cast<std::size_t>(at)]);
  }
}

void SimulatedMetrics::follow(const api::PipelineJob& job, double time) {
  const auto& plan = job.status.plan;
  if (plan.revision != seen_revision_) {
    seen_revision_ = plan.revision;
    const bool kept =
        plan.trigger == "Retune" || plan.trigger == "Manual" || plan.trigger == "Compress";
    if (!kept) model_ = sync_model_ = {};
  }
  const auto* replan = api::find_condition(job.status.conditions, "ReplanInProgress");
  const bool settled = replan != nullptr && replan->status == "False";
  const std::int64_t revision = settled ? plan.applied_revision : 0;
  if (revision == replicas_revision_) return;
  replicas_revision_ = revision;
  replicas_ = {};
  replicas_.last_time = wall(time);
}

estimator::Estimates SimulatedMetrics::estimates(double time, bool answers) {
  using estimator::Freshness;
  const auto now = wall(time);
  if (answers) {
    find_baselines(time);
    // Links of ranks that are no more count for a window only.
    estimator::add_scrapes(model_, fresh_);
    estimator::add_scrapes(sync_model_, fresh_sync_);
    estimator::add_replica_scrapes(replicas_, fresh_replicas_);
    fresh_.clear();
    fresh_sync_.clear();
    fresh_replicas_.clear();
    for (estimator::LinkModelState* model : {&model_, &sync_model_}) {
      if (!baseline_.empty()) model->baseline = baseline_;
    }
  }
  const auto freshness = answers ? Freshness::kFresh : Freshness::kQueryFailed;
  auto out = estimator::estimates_of(model_, freshness, now, kStale);
  estimator::add_sync_links(out, sync_model_, freshness, now, kStale);
  if (answers && !scraped_.empty()) {
    std::map<int, SimulatedWorkers::OpCounter> stages;
    const Scraped& old = before(time - kOpWindow);
    for (const auto& [place, counter] : scraped_.back().ops) {
      const auto known = old.ops.find(place);
      const auto was = known == old.ops.end() ? SimulatedWorkers::OpCounter{} : known->second;
      const double count = counter.count - was.count;
      if (count <= 0) continue;
      const double forward = counter.forward - was.forward;
      const double backward = counter.backward - was.backward;
      out.worker_seconds[place] = {forward / count, backward / count};
      auto& stage = stages[place.second];
      stage.count += count;
      stage.forward += forward;
      stage.backward += backward;
    }
    for (const auto& [stage, sum] : stages) {
      out.stage_seconds[stage] = {sum.forward / sum.count, sum.backward / sum.count};
    }
    out.progress = estimator::Progress{workers_.step(), wall(workers_.last_trained()), now};
  }
  out.replicas = estimator::replica_estimates_of(replicas_, now, kStale);
  out.replicas_revision = replicas_revision_;
  return out;
}

}  // namespace weir::sim
