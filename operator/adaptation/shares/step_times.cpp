// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/shares/step_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "worker/base/median.h"

namespace weir::shares {
namespace {

using estimator::ReplicaInterval;

// operator/adaptation/shares/README.md "Shares" and "Sync mode".
constexpr double kUneven = 1.1;       // against the median of the others
constexpr double kPartialLoss = 0.8;  // of the ideal gain, for averaging and partner selection
constexpr double kSlowSync = 0.5;     // of the median bandwidth

std::int64_t least_steps(const ReplicaInterval& interval) {
  std::int64_t least = interval.replicas.begin()->second.steps;
  for (const auto& [replica, time] : interval.replicas) least = std::min(least, time.steps);
  return least;
}

double others_median(const ReplicaInterval& interval, int replica) {
  std::vector<double> others;
  for (const auto& [other, time] : interval.replicas) {
    if (other != replica) others.push_back(time.smoothed);
  }
  return median(std::move(others));
}

}  // namespace

Intervals newest(const std::vector<ReplicaInterval>& intervals, std::int64_t steps) {
  std::size_t first = intervals.size();
  while (first > 0 && steps > 0) steps -= least_steps(intervals[--first]);
  return steps > 0 ? Intervals() : Intervals(intervals).subspan(first);
}

double mean_seconds(Intervals intervals, int replica) {
  double seconds = 0, steps = 0;
  for (const ReplicaInterval& interval : intervals) {
    const auto& time = interval.replicas.at(replica);
    seconds += time.seconds * static_cast<double>(time.steps);
    steps += static_cast<double>(time.steps);
  }
  return seconds / steps;
}

std::vector<Uneven> all_uneven(Intervals intervals) {
  std::vector<Uneven> found;
  if (intervals.empty()) return found;
  for (const auto& [replica, end] : intervals.back().replicas) {
    if (intervals.back().replicas.size() < 2) break;
    const auto always = [&](bool slow) {
      return std::ranges::all_of(intervals, [&](const ReplicaInterval& interval) {
        const double own = interval.replicas.at(replica).smoothed;
        const double others = others_median(interval, replica);
        return slow ? own > kUneven * others : own * kUneven < others;
      });
    };
    if (!always(true) && !always(false)) continue;
    found.push_back({replica, end.smoothed, others_median(intervals.back(), replica)});
  }
  std::ranges::stable_sort(found, [](const Uneven& a, const Uneven& b) {
    const double x = a.seconds / a.others, y = b.seconds / b.others;
    return x > 1 || y > 1 ? x > y : x < y;
  });
  return found;
}

std::optional<Uneven> uneven(Intervals intervals) {
  const auto found = all_uneven(intervals);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

Spread spread_of(Intervals intervals) {
  std::vector<std::pair<double, double>> times;
  double steps = 0, sum = 0, squares = 0;
  for (const ReplicaInterval& interval : intervals) {
    for (const auto& [replica, time] : interval.replicas) {
      const auto weight = static_cast<double>(time.steps);
      times.emplace_back(time.seconds, weight);
      steps += weight;
      sum += weight * time.seconds;
      squares += weight * time.seconds * time.seconds;
    }
  }
  std::sort(times.begin(), times.end());
  const auto quantile = [&](double part) {
    double seen = 0;
    for (const auto& [seconds, weight] : times) {
      seen += weight;
      if (seen >= part * steps) return seconds;
    }
    return times.back().first;
  };
  const double mean = sum / steps;
  return {std::sqrt(std::max(0.0, squares / steps - mean * mean)) / mean,
          quantile(0.95) / quantile(0.5)};
}

double partial_gain(Intervals intervals) {
  double steps = 0, slowest = 0, rate = 0;
  for (const ReplicaInterval& interval : intervals) {
    const auto weight = static_cast<double>(least_steps(interval));
    double most = 0, rates = 0;
    for (const auto& [replica, time] : interval.replicas) {
      most = std::max(most, time.seconds);
      rates += 1 / time.seconds;
    }
    steps += weight;
    slowest += weight * most;
    rate += weight * rates / static_cast<double>(interval.replicas.size());
  }
  return kPartialLoss * (slowest / steps) * (rate / steps) - 1;
}

int slow_sync_replica(const estimator::ReplicaEstimates& replicas) {
  std::vector<double> known;
  for (const auto& [replica, speed] : replicas.speeds) {
    if (speed.sync_bytes_per_second > 0) known.push_back(speed.sync_bytes_per_second);
  }
  if (known.empty()) return -1;
  const double usual = median(known);
  for (const auto& [replica, speed] : replicas.speeds) {
    if (speed.sync_bytes_per_second > 0 && speed.sync_bytes_per_second < kSlowSync * usual) {
      return replica;
    }
  }
  return -1;
}

}  // namespace weir::shares
