// SPDX-License-Identifier: Apache-2.0
// Estimates how fast each replica is by itself, from weir_replica_step_seconds_total (the time of
// its steps without its wait for other replicas) and the number of these steps. Pure: the time is
// an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "operator/estimator/estimates.h"

namespace weir::estimator {

// Steps of the slowest replica that are kept. operator/adaptation/shares needs 50 at most.
constexpr std::int64_t kKeptReplicaSteps = 64;

// One scrape of one replica. Both counters come from the same worker and begin at its start.
struct ReplicaCounter {
  std::int64_t steps = 0;            // weir_iteration_seconds_count, without skipped steps
  double seconds = 0;                // weir_replica_step_seconds_total
  double sync_bytes_per_second = 0;  // weir_sync_bus_bandwidth; 0 = unknown
};
struct ReplicaScrape {
  SystemTime time{};
  std::map<int, ReplicaCounter> replicas;  // by index of the replica
};

struct ReplicaModelState {
  std::map<int, ReplicaCounter> last;  // counters at the end of the newest interval
  SystemTime last_time{};
  std::deque<ReplicaInterval> intervals;  // oldest first
  std::map<int, double> smoothed;         // seconds, moving average of T_p (weight 0.5 per step)
  std::map<int, double> sync_bytes_per_second;
};

// Adds the scrapes that are newer than the newest kept one. An interval ends as soon as every
// replica has completed a step in it. If a counter falls (its worker started again) or the set of
// replicas changes, all is forgotten and a new interval begins.
void add_replica_scrapes(ReplicaModelState& state, const std::vector<ReplicaScrape>& scrapes);

// Forgets all measurements and the interval in progress. Call it when the shares, the replicas or
// the sync mode change, because T_p of one replica then changes against that of another. Changes of
// k and caps affect all replicas equally and need no call.
void forget_replicas(ReplicaModelState& state);

// The estimates are fresh if the newest interval ended less than stale_after ago.
ReplicaEstimates replica_estimates_of(const ReplicaModelState& state, SystemTime now,
                                      std::chrono::seconds stale_after);

}  // namespace weir::estimator
