// SPDX-License-Identifier: Apache-2.0
// Rates of the links between the members of an average, from which the coordinator finds slow
// nodes.
#pragma once

#include <vector>

#include "worker/transport/collective.h"

namespace weir::engine {

// Members send at the same time and share the receiver's bandwidth. The rate of one member is
// therefore scaled up to the bytes received from all members.
struct ReceivedRate {
  int from = 0;
  double bytes_per_second = 0;
};

// The last average of a replica.
struct AverageReport {
  std::vector<ReceivedRate> received;
  // Duration once all members had begun; 0 if there was no average or if it cannot overlap with a
  // step.
  double seconds = 0;
};

// Rates of the average between the two counters. A member from which nothing came is left out, and
// so is one of whose bytes too few were timed. A few milliseconds of noise are added, so that all
// fast links count as equally fast.
std::vector<ReceivedRate> received_rates(const transport::CollectiveCounters& before,
                                         const transport::CollectiveCounters& after);

}  // namespace weir::engine
