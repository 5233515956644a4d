// SPDX-License-Identifier: Apache-2.0
// Is a plan legal? One line per broken rule, naming the field; never repaired silently
// (worker/schedule/README.md "Legality").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/schedule/plan.h"

namespace weir::schedule {

// A step of more could neither be counted nor simulated in a useful time: the CRD takes no more
// samples a step, and a micro-batch has at least one.
inline constexpr int kMostMicroBatches = 1 << 20;  // of all replicas
inline constexpr int kMostStepSamples = 1'000'000'000;

// "" where a step keeps both limits.
std::string too_large_a_step(const Plan& plan);

// Rules of the schedule alone: S caps, 1 <= caps[s+1] <= caps[s] <= M, 1 <= k <= M, dispatch in
// force.
std::vector<std::string> broken_rules(const Schedule& schedule, int stages, int micro_batches);
// The same, and: layers contiguous from 0 to layers-1, one rank per (replica, stage), shares
// positive, a step within the limits above. layers < 0: not checked.
std::vector<std::string> broken_rules(const Plan& plan, int layers);

// Bytes that a rank holds per byte of its stage's parameters: value, gradient and two moments in
// float, the gradient's sum in double. What a profile means that does not say; workers refuse plans
// by the same number.
inline constexpr int kStateFactor = 6;

// Bytes that a stage holds: static + stash x cap + receive slots + send window
// (worker/schedule/README.md "Memory of a stage").
struct StageMemory {
  std::int64_t stash_bytes = 0;   // of one micro-batch
  std::int64_t input_bytes = 0;   // boundary tensor of the stage before, one micro-batch
  std::int64_t output_bytes = 0;  // own boundary tensor, one micro-batch
  std::int64_t static_bytes = 0;  // parameters, gradients, optimizer, transient
};
std::int64_t memory_bytes(const StageMemory& stage, const Schedule& schedule, int stage_index);
// Stages whose memory is above their budget, one line each. A budget of 0 or less: not limited.
std::vector<std::string> over_budget(const Schedule& schedule,
                                     const std::vector<StageMemory>& stages,
                                     const std::vector<std::int64_t>& budgets);
// cap_max: the caps with the largest sum, non-increasing, with which every stage keeps its budget
// (a stage limits those behind it); legal caps up to these keep it too. 0 on a stage that cannot
// hold one micro-batch.
std::vector<int> caps_within(const std::vector<StageMemory>& stages,
                             const std::vector<std::int64_t>& budgets, int micro_batches);

}  // namespace weir::schedule
