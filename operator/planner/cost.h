// SPDX-License-Identifier: Apache-2.0
// The cost model of a cut (planner.md 2): the period of kFkB in its local form, and the sum form of
// the step. Inside the room only. Seconds of one micro-batch unless said.
#pragma once

#include <vector>

#include "operator/planner/chain.h"
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

struct StageCost {
  double forward = 0, backward = 0, update = 0;
};
struct Pipeline {
  std::vector<StageCost> stages;                    // S
  std::vector<double> send_forward, send_backward;  // S-1
};

// P(k) = max(max t, max c, max over s < q of lat(s,q) / (k (q-s+1))),
// lat(s,q) = sum of F+B over s..q + both transfers between + (k-1)(max(F_q, c_{q-1}) + max(B_s,
// c_s)). At most 2.8 % off the simulated period (planner.md 2.2). O(S^2).
double period(const Pipeline& pipeline, int k);
// T+ = sum t + sum of both transfers + (M-1) P(k).
double step_seconds(const Pipeline& pipeline, const Shape& shape);
// Optimizer time that no other stage's backward hides: max_s (update_s - sum_{j<s} (c_j + B_j)).
double update_tail(const Pipeline& pipeline);

}  // namespace weir::planner
