// SPDX-License-Identifier: Apache-2.0
// Costs of the links between assigned devices: transfer of a micro-batch between two stages, and
// AllReduce of a stage (operator/planner/README.md "Stage and boundary costs"). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/placement/topology.h"

namespace weir::placement {

// Device of each rank: [replica][stage][rank of the stage].
using Assignment = std::vector<std::vector<std::vector<int>>>;

struct Send {
  double seconds = 0;  // latency and transfer
  double hold = 0;     // seconds in which the message occupies the link, without latency
};
// Sends one micro-batch from the r ranks of a stage to the r' ranks of the next. The slowest pair
// of ranks that share a part of it counts: latency + bytes / (min(r, r') bw).
Send send_between(const Topology& topology, const std::vector<int>& from,
                  const std::vector<int>& to, std::int64_t bytes);

// Seconds of an AllReduce of `bytes` over all ranks of a stage in all replicas. The ring goes from
// server to server: 2 (n-1) messages of bytes / n over the slowest hop. 0 for one rank.
double ring_seconds(const Topology& topology, const Assignment& assignment, std::size_t stage,
                    std::int64_t bytes);

}  // namespace weir::placement
