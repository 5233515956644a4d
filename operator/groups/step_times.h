// SPDX-License-Identifier: Apache-2.0
// Reads the replicas' step times (operator/groups/README.md "Step times"). Pure. Intervals are
// joint in time, oldest first, each with the same replicas.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "operator/estimator/estimates.h"

namespace weir::group_policy {

using Intervals = std::span<const estimator::ReplicaInterval>;

// The newest that hold `steps` steps of the slowest replica; empty: there are not as many.
Intervals newest(const std::vector<estimator::ReplicaInterval>& intervals, std::int64_t steps);

double mean_seconds(Intervals intervals, int replica);  // T_p; intervals not empty

// The replica whose smoothed T_p was more than 1.1 x the median of the others, or less than a 1.1th
// of it, at the end of each of these intervals: the farthest; a slow one goes before a fast one.
struct Uneven {
  int replica = 0;
  double seconds = 0, others = 0;  // smoothed, at the end
};
std::optional<Uneven> uneven(Intervals intervals);
// All of them, in that order.
std::vector<Uneven> all_uneven(Intervals intervals);

// Of all T_p, with their weight in steps.
struct Spread {
  double cv = 0;    // standard deviation / mean
  double tail = 1;  // 95 % quantile / median
};
Spread spread_of(Intervals intervals);

// Throughput of Partial over that of Exact - 1: 0.8 x mean of the slowest T_p x mean of 1/T_p - 1.
double partial_gain(Intervals intervals);

// The replica whose link to the others has less than half of their median bandwidth; -1: none
// known.
int slow_sync_replica(const estimator::ReplicaEstimates& replicas);

}  // namespace weir::group_policy
