// SPDX-License-Identifier: Apache-2.0
// Costs of the links between assigned devices: transfers of a micro-batch between neighbour
// stages, AllReduce of a stage (operator/planner/README.md "Stage and boundary costs"). Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/placement/topology.h"

namespace weir::placement {

// [replica][stage][rank of the stage]: a device.
using Assignment = std::vector<std::vector<std::vector<int>>>;

struct Send {
  double seconds = 0;  // latency and transfer
  double hold = 0;     // how long the message occupies the link
};
// One micro-batch from a stage to the next, over the slowest pair of ranks that share a part of it:
// latency + bytes / (min(r, r') bw).
Send send_between(const Topology& topology, const std::vector<int>& from,
                  const std::vector<int>& to, std::int64_t bytes);

// AllReduce of `bytes` over all ranks of a stage in all replicas, in a ring by server: 2 (n-1)
// messages of 1/n each over the slowest hop. 0 for one rank.
double ring_seconds(const Topology& topology, const Assignment& assignment, std::size_t stage,
                    std::int64_t bytes);

}  // namespace weir::placement
