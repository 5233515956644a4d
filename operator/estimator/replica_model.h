// SPDX-License-Identifier: Apache-2.0
// How fast each replica is by itself, from the counters weir_replica_step_seconds_total (time of
// its steps less its wait for other replicas) and the steps they count. Pure: the time is an
// argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "operator/estimator/estimates.h"

namespace weir::estimator {

// Steps of the slowest replica that are remembered: what the policy looks at is 50 at most.
constexpr std::int64_t kKeptReplicaSteps = 64;

// One scrape of one replica: both counters from the same worker, since its start.
struct ReplicaCounter {
  std::int64_t steps = 0;            // weir_iteration_seconds_count: done by itself
  double seconds = 0;                // weir_replica_step_seconds_total
  double sync_bytes_per_second = 0;  // weir_sync_bus_bandwidth, 0 = unknown
};
struct ReplicaScrape {
  SystemTime time{};
  std::map<int, ReplicaCounter> replicas;  // by index of the replica
};

struct ReplicaModelState {
  std::map<int, ReplicaCounter> last;  // at the end of the newest interval
  SystemTime last_time{};
  std::deque<ReplicaInterval> intervals;  // oldest first
  std::map<int, double> smoothed;         // EWMA(0.5) a step of T_p, seconds
  std::map<int, double> sync_bytes_per_second;
};

// Adds what is newer than the newest kept scrape. An interval ends as soon as every replica of the
// scrape has completed a step since it began; a counter that fell (its worker began again), or
// another set of replicas, begins anew without a sample.
void add_replica_scrapes(ReplicaModelState& state, const std::vector<ReplicaScrape>& scrapes);

// Call when the shares, the replicas or the mode change, that is when T_p of one replica changes
// against that of another: forgets what was measured; the interval under way is not used.
// Changes of k and caps touch all replicas alike and need no call.
void forget_replicas(ReplicaModelState& state);

// Fresh while the newest interval ended less than stale_after ago.
ReplicaEstimates replica_estimates_of(const ReplicaModelState& state, SystemTime now,
                                      std::chrono::seconds stale_after);

}  // namespace weir::estimator
