// SPDX-License-Identifier: Apache-2.0
// In-flight caps of a pipeline, and the buffers that follow from them. Pure. Formulas:
// worker/schedule/README.md "Notation", "Closed forms", "Credits".
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "worker/schedule/plan.h"

namespace weir::schedule {

struct StageTime {
  std::chrono::nanoseconds forward{0}, backward{0};                 // time of one micro-batch
  std::chrono::nanoseconds backward_input{0}, backward_weights{0};  // of a split backward
  bool operator==(const StageTime&) const = default;
};

std::vector<int> kfkb_caps(int stages, int micro_batches, int k);       // min(M, k(S-s))
std::vector<int> slack_caps(int stages, int micro_batches, int slack);  // min(M, 1 + D(S-1-s))
// The smallest k whose kFkB caps are at least these caps: max_s ceil(cap_s / (S-s)).
int k_of_caps(std::span<const int> caps);
// Returns kStrict if the caps have k = 1, else the wanted dispatch: with k = 1, Hint can be slower.
Dispatch dispatch_in_force(std::span<const int> caps, Dispatch wanted);
// The same for the caps of a schedule; with split backwards always the wanted one.
Dispatch dispatch_in_force(const Schedule& schedule, Dispatch wanted);

// lean_x: the smallest caps with which, in the steady state, no stage waits for a link.
//   x_{S-1} = 1,  x_i = min(M, max(x_{i+1}, max over j > i of x_j - 1 + ceil(L_ij / T)))
//   L_ij = sum of f+b over stages i..j + 2 x sum of c over boundaries i..j-1,  T = largest f+b
// links[s] is the time of one micro-batch over boundary s in one direction; there are S-1 of them.
// Cost: O(S^2).
std::vector<int> lean_caps(std::span<const StageTime> stages,
                           std::span<const std::chrono::nanoseconds> links, int micro_batches);

// The largest useful Split::postponed: as many W as the stage may hold without stopping F, and as
// fit into the time that its last gradient takes to stage 0 and that stage's own last W takes:
//   h_s = max(0, min(A_s - x_s, floor((sum over i < s of (bi_i + cb_i) + w_0 - sums_s) / w_s)))
// and h_0 = 0. backward_links: S-1 times. sums: of each stage's sums over replicas; may be empty.
std::vector<int> most_postponed(std::span<const StageTime> stages,
                                std::span<const std::chrono::nanoseconds> backward_links,
                                std::span<const int> caps, std::span<const int> held,
                                std::span<const std::chrono::nanoseconds> sums = {});

// Number of buffers of one rank. send_window: sends that have not left yet, n+1. receive_forward
// and receive_backward: receive slots, n+1 and 3. n = max(2, k of the caps).
struct Credits {
  int send_window = 3, receive_forward = 3, receive_backward = 3;
};
Credits credits_of(const Schedule& schedule);

}  // namespace weir::schedule
