// SPDX-License-Identifier: Apache-2.0
// Checks whether a plan is legal. Each broken rule gives one line that names the field; nothing is
// repaired silently (worker/schedule/README.md "Legality").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/schedule/plan.h"

namespace weir::schedule {

// Limits of a step, because a larger one could be neither counted nor simulated in useful time. The
// CRD has the same limit of samples, and a micro-batch has at least one sample.
inline constexpr int kMostMicroBatches = 1 << 20;  // over all replicas
inline constexpr int kMostStepSamples = 1'000'000'000;

// Returns "" if a step keeps both limits.
std::string too_large_a_step(const Plan& plan);

// Rules of the schedule alone: S caps, 1 <= caps[s+1] <= caps[s] <= M, 1 <= k <= M, the dispatch in
// force, and for a split backward caps[s] <= held[s] <= M, 0 <= postponed[s] <= M.
std::vector<std::string> broken_rules(const Schedule& schedule, int stages, int micro_batches);
// The same rules, and: layers are contiguous from 0 to layers-1, each (replica, stage) has one
// rank, codecs are none or one per boundary, shares are positive, and a step keeps the limits
// above. If layers < 0, the layers are not checked.
std::vector<std::string> broken_rules(const Plan& plan, int layers);

// Bytes that a rank holds per byte of its stage's parameters: value, gradient and two moments as
// float, and the gradient's sum as double. It is the default of profiles without a value of their
// own, and workers check plans with it.
inline constexpr int kStateFactor = 6;

// Bytes that a stage holds: static + micro-batches + receive slots + send window
// (worker/schedule/README.md "Memory of a stage").
struct StageMemory {
  std::int64_t activation_bytes = 0;  // kept activations of one micro-batch
  // Split backward, one micro-batch: held from B to W, and in B itself (by layer the larger one).
  std::int64_t held_bytes = 0, in_backward_bytes = 0;
  std::int64_t input_bytes = 0;   // boundary tensor from the previous stage, one micro-batch
  std::int64_t output_bytes = 0;  // own boundary tensor, one micro-batch
  std::int64_t static_bytes = 0;  // parameters, gradients, optimizer, transient
};
std::int64_t memory_bytes(const StageMemory& stage, const Schedule& schedule, int stage_index);
// The most micro-batches from F to the end of W that a split backward with the caps of `schedule`
// may hold in `limit` bytes; at most `most`. Below the cap: not even the cap fits.
int most_held(const StageMemory& stage, const Schedule& schedule, int stage_index,
              std::int64_t limit, int most);

}  // namespace weir::schedule
