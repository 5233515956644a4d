// SPDX-License-Identifier: Apache-2.0
// opt_x: caps found by search over the simulator (worker/schedule/README.md "Searched caps"). Pure.
#pragma once

#include <span>
#include <vector>

#include "worker/schedule/simulator.h"

namespace weir::schedule {

// Starts at min(lean_x, cap_max) and adds one or two micro-batches in flight, on one stage or on it
// and all before it, where that gains most step time per micro-batch added, as long as it gains
// 0.2 % of the step each. cap_max: per stage, non-increasing, at most M. Small M and uneven stages
// leave lean_x up to 12 % short. Cost: about 30 (S=8: 30, S=4: 14) simulated steps a round, 1 to
// 10 rounds.
std::vector<int> opt_caps(const PipelineModel& model, int micro_batches,
                          std::span<const int> cap_max);
// lean_x of a model: c is transfer + latency, the mean of both directions.
std::vector<int> lean_caps(const PipelineModel& model, int micro_batches);

}  // namespace weir::schedule
