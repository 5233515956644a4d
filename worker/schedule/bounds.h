// SPDX-License-Identifier: Apache-2.0
// Lower bounds of a step: no order of its ops is faster (bounds.cpp). Pure.
#pragma once

#include <chrono>

#include "worker/schedule/simulator.h"

namespace weir::schedule {

// Whether an order may begin the gradient of the input without that of the weights. With kSplit it
// may do so or not, at each stage and for each micro-batch.
enum class Backwards : unsigned char { kWhole, kSplit };

// The least time of a micro-batch on a stage: a whole backward may be shorter than its two parts.
std::chrono::nanoseconds least_compute(const StageTime& stage, Backwards backwards);

// The least step of any order, with any memory and any caps. Links at share 1. Cost: O(S).
std::chrono::nanoseconds least_step(const PipelineModel& model, int micro_batches,
                                    Backwards backwards);

}  // namespace weir::schedule
