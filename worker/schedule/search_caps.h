// SPDX-License-Identifier: Apache-2.0
// opt_x: caps found by a search over the simulator (worker/schedule/README.md "Searched caps").
// Pure.
#pragma once

#include <span>
#include <vector>

#include "worker/schedule/simulator.h"

namespace weir::schedule {

// Starts at min(lean_x, cap_max). In each round it adds one or two micro-batches in flight, on one
// stage or on that stage and all before it: the addition that saves most step time per micro-batch.
// It stops when that saves less than 0.2 % of the step per micro-batch. cap_max: per stage,
// non-increasing, at most M. A search is needed because a small M or uneven stages leave lean_x up
// to 12 % short. Cost: 1 to 10 rounds of about 30 simulated steps (S=8: 30, S=4: 14).
std::vector<int> opt_caps(const PipelineModel& model, int micro_batches,
                          std::span<const int> cap_max);
// lean_x of a model. c is transfer + latency, averaged over both directions.
std::vector<int> lean_caps(const PipelineModel& model, int micro_batches);

}  // namespace weir::schedule
