// SPDX-License-Identifier: Apache-2.0
// Closed forms of kFkB on a pipeline (operator/planner/README.md "Period" and "Step time"): the
// period, the step and bounds of it. Pure. Seconds of one micro-batch unless said.
#pragma once

#include <vector>

namespace weir::planner {

struct StageCost {
  double forward = 0, backward = 0;
  double update = 0;                                // once a step: optimizer and AllReduce
  double backward_input = 0, backward_weights = 0;  // of a split backward
};
struct Pipeline {
  std::vector<StageCost> stages;                    // S
  std::vector<double> send_forward, send_backward;  // S-1; latency and transfer
  // S-1: how long each micro-batch occupies the link; empty: as long as it is under way.
  std::vector<double> hold_forward, hold_backward;
};

// P(k) = max(max t, max c, max over s < q of lat(s,q) / (k (q-s+1))),
// lat(s,q) = sum of F+B over s..q + both transfers between + (k-1) (mf + mb). O(S^2).
// mf = max(F_q, c_{q-1}), mb = max(B_s, c_s); at most 2.8 % off the simulated period.
double period(const Pipeline& pipeline, int k, bool slack = false);

// Update that no other stage's backward hides: max_s (update_s - sum_{j<s} (c_j + B_j)), >= 0.
double update_tail(const Pipeline& pipeline);

struct StepForms {
  double sum = 0;    // T+: all stages and transfers once, M-1 periods, tail
  double pivot = 0;  // T~: the slowest stage, link or loop sets the pace after its own fill
  // V: no order of whole backward passes is faster; without the tail.
  double bound = 0;
};
// slack: caps 1 + k d instead of k (d+1): loops without bursts, k (q-s) + 1 micro-batches in each.
StepForms step_forms(const Pipeline& pipeline, int micro_batches, int k, bool slack = false);

}  // namespace weir::planner
