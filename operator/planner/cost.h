// SPDX-License-Identifier: Apache-2.0
// The cost model of a cut of a chain (planner.md 2). Inside the room only. Seconds of one
// micro-batch unless said.
#pragma once

#include <vector>

#include "operator/planner/chain.h"
#include "operator/planner/period.h"
#include "worker/schedule/plan.h"

namespace weir::planner {

struct LinkTime {
  double seconds_per_byte = 0, latency = 0;
  double of(std::int64_t bytes) const {
    return latency + static_cast<double>(bytes) * seconds_per_byte;
  }
  bool operator==(const LinkTime&) const = default;
};
struct BoundaryLink {
  LinkTime forward, backward;
};

// What is fixed before the cut. k is that of the cost model: of the caps.
struct Shape {
  int stages = 1, micro_batches = 1, k = 1;
  schedule::Schedule schedule;
};

// Stage s has layers [first[s], first[s+1]) on kind kinds[s].
struct Cut {
  std::vector<int> first;  // S+1
  std::vector<int> kinds;  // S
  bool operator==(const Cut&) const = default;
};

// T+ = sum t + sum of both transfers + (M-1) P(k).
double step_seconds(const Pipeline& pipeline, const Shape& shape);

}  // namespace weir::planner
