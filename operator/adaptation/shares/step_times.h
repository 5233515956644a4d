// SPDX-License-Identifier: Apache-2.0
// Statistics of the replicas' step times (operator/adaptation/shares/README.md "Step times"). Pure.
// Intervals are in order of time, oldest first, and all have the same replicas.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "operator/estimator/estimates.h"

namespace weir::shares {

using Intervals = std::span<const estimator::ReplicaInterval>;

// The newest intervals that have `steps` steps of the slowest replica; empty if there are too few.
Intervals newest(const std::vector<estimator::ReplicaInterval>& intervals, std::int64_t steps);

double mean_seconds(Intervals intervals, int replica);  // mean T_p; intervals must not be empty

// A replica stands out if its smoothed T_p was more than 1.1 x the median of the others, or less
// than 1 / 1.1 of it, at the end of each interval. Slow replicas come before fast ones, and among
// these the one that is farthest from the others.
struct Uneven {
  int replica = 0;
  double seconds = 0, others = 0;  // smoothed T_p at the end, and the median of the others
};
std::optional<Uneven> uneven(Intervals intervals);    // the first of them
std::vector<Uneven> all_uneven(Intervals intervals);  // all of them in that order

// Spread of all T_p, weighted by steps.
struct Spread {
  double cv = 0;    // standard deviation / mean
  double tail = 1;  // 95 % quantile / median
};
Spread spread_of(Intervals intervals);

// Predicted gain in throughput of Partial over Exact: 0.8 x mean of the slowest T_p x mean of 1/T_p
// - 1.
double partial_gain(Intervals intervals);

// A replica whose link to the others has less than half of the median bandwidth; -1 = none is
// known.
int slow_sync_replica(const estimator::ReplicaEstimates& replicas);

}  // namespace weir::shares
