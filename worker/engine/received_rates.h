// SPDX-License-Identifier: Apache-2.0
// What an average says of the links between its members, for telling slow ones from others.
#pragma once

#include <vector>

#include "worker/transport/collective.h"

namespace weir::engine {

// Bytes a second that came from a replica. Members send at the same time, so each has its part of a
// port: the rate of one is told as if all that came from everybody had come at it.
struct ReceivedRate {
  int from = 0;
  double bytes_per_second = 0;
};

// A replica's last average.
struct AverageReport {
  std::vector<ReceivedRate> received;
  // Once all members had begun. 0: there was none, or it cannot go on beside a step.
  double seconds = 0;
};

// Of the average between the two; nothing of those from whom nothing came, or too little of it in a
// way that says something of the rate. A few milliseconds are noise, so links that are fast enough
// are as good as each other.
std::vector<ReceivedRate> received_rates(const transport::CollectiveCounters& before,
                                         const transport::CollectiveCounters& after);

}  // namespace weir::engine
