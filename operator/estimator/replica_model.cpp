// SPDX-License-Identifier: Apache-2.0
#include "operator/estimator/replica_model.h"

#include <algorithm>
#include <cmath>

#include "worker/base/median.h"

namespace weir::estimator {
namespace {

constexpr double kForgetting =
    0.5;  // weight of a step in the average (operator/adaptation/shares/README.md)

enum class Change : unsigned char { kNone, kIncomplete, kOther };
// Compares a scrape with the last one. kIncomplete: a replica is missing. kOther: the replicas are
// others, or the worker of one has started again.
Change compared(const std::map<int, ReplicaCounter>& last,
                const std::map<int, ReplicaCounter>& now) {
  for (const auto& [replica, counter] : last) {
    const auto found = now.find(replica);
    if (found == now.end()) return Change::kIncomplete;
    if (found->second.steps < counter.steps || found->second.seconds < counter.seconds) {
      return Change::kOther;
    }
  }
  return last.size() == now.size() ? Change::kNone : Change::kOther;
}

bool usable(const ReplicaScrape& scrape) {
  return std::ranges::all_of(scrape.replicas, [](const auto& entry) {
    return entry.second.steps >= 0 && std::isfinite(entry.second.seconds) &&
           entry.second.seconds >= 0;
  });
}

void close_interval(ReplicaModelState& state, const ReplicaScrape& scrape) {
  ReplicaInterval interval{.end = scrape.time, .replicas = {}};
  for (const auto& [replica, counter] : scrape.replicas) {
    const ReplicaCounter& before = state.last.at(replica);
    ReplicaTime time;
    time.steps = counter.steps - before.steps;
    time.seconds = (counter.seconds - before.seconds) / static_cast<double>(time.steps);
    const auto [smoothed, first] = state.smoothed.try_emplace(replica, time.seconds);
    if (!first) {
      const double weight = 1 - std::pow(1 - kForgetting, static_cast<double>(time.steps));
      smoothed->second += weight * (time.seconds - smoothed->second);
    }
    time.smoothed = smoothed->second;
    interval.replicas[replica] = time;
  }
  state.intervals.push_back(std::move(interval));
}

std::int64_t least_steps(const ReplicaInterval& interval) {
  std::int64_t least = interval.replicas.empty() ? 0 : interval.replicas.begin()->second.steps;
  for (const auto& [replica, time] : interval.replicas) least = std::min(least, time.steps);
  return least;
}

// Keeps as many of the newest intervals as needed for kKeptReplicaSteps of the slowest replica.
void drop_old(ReplicaModelState& state) {
  std::int64_t steps = 0;
  for (const ReplicaInterval& interval : state.intervals) steps += least_steps(interval);
  while (!state.intervals.empty() &&
         steps - least_steps(state.intervals.front()) >= kKeptReplicaSteps) {
    steps -= least_steps(state.intervals.front());
    state.intervals.pop_front();
  }
}

void add_scrape(ReplicaModelState& state, const ReplicaScrape& scrape) {
  const Change change = compared(state.last, scrape.replicas);
  if (change == Change::kIncomplete) return;  // a scrape may have failed; wait for the next one
  if (change == Change::kOther || state.last.empty()) {
    forget_replicas(state);
    state.last = scrape.replicas;
    state.last_time = scrape.time;
    return;
  }
  for (const auto& [replica, counter] : scrape.replicas) {
    if (counter.sync_bytes_per_second > 0) {
      state.sync_bytes_per_second[replica] = counter.sync_bytes_per_second;
    }
  }
  const bool all_moved = std::ranges::all_of(scrape.replicas, [&](const auto& entry) {
    const ReplicaCounter& before = state.last.at(entry.first);
    return entry.second.steps > before.steps && entry.second.seconds > before.seconds;
  });
  if (!all_moved) return;
  close_interval(state, scrape);
  state.last = scrape.replicas;
  state.last_time = scrape.time;
  drop_old(state);
}

}  // namespace

void add_replica_scrapes(ReplicaModelState& state, const std::vector<ReplicaScrape>& scrapes) {
  std::vector<const ReplicaScrape*> fresh;
  for (const ReplicaScrape& scrape : scrapes) {
    if (!scrape.replicas.empty() && usable(scrape)) fresh.push_back(&scrape);
  }
  std::ranges::stable_sort(
      fresh, [](const ReplicaScrape* a, const ReplicaScrape* b) { return a->time < b->time; });
  for (const ReplicaScrape* scrape : fresh) {
    if (scrape->time > state.last_time) add_scrape(state, *scrape);
  }
}

void forget_replicas(ReplicaModelState& state) {
  const SystemTime newest = state.last_time;
  state = {};
  state.last_time = newest;  // older scrapes must not be added again
}

ReplicaEstimates replica_estimates_of(const ReplicaModelState& state, SystemTime now,
                                      std::chrono::seconds stale_after) {
  ReplicaEstimates estimates;
  if (state.intervals.empty()) return estimates;
  estimates.fresh = now - state.intervals.back().end <= stale_after;
  estimates.intervals.assign(state.intervals.begin(), state.intervals.end());
  for (const auto& [replica, seconds] : state.smoothed) {
    ReplicaSpeed speed{.seconds = seconds};
    std::vector<double> others;
    for (const auto& [other, value] : state.smoothed) {
      if (other != replica) others.push_back(value);
    }
    if (!others.empty()) speed.others_seconds = median(std::move(others));
    for (const ReplicaInterval& interval : state.intervals) {
      speed.steps += interval.replicas.at(replica).steps;
    }
    const auto rate = state.sync_bytes_per_second.find(replica);
    if (rate != state.sync_bytes_per_second.end()) speed.sync_bytes_per_second = rate->second;
    estimates.speeds[replica] = speed;
  }
  return estimates;
}

}  // namespace weir::estimator
