// SPDX-License-Identifier: Apache-2.0
// The loss on data that is not trained on, between two steps: forwards alone, through all stages of
// a replica. Each replica does all of it, so that none waits for another and with sync.mode Exact
// all tell the same loss; with equal micro-batches it is the same bits for every cut. Engine thread
// only.
#pragma once

#include <cstdint>
#include <stop_token>

#include "worker/base/result.h"
#include "worker/engine/step.h"
#include "worker/schedule/plan.h"

namespace weir::engine {

// How often, of how much; the same on all ranks.
struct Validation {
  std::int64_t interval = 0;  // steps; 0 = never
  int samples = 0;            // at least; rounded up to whole micro-batches
};

// After the `completed`-th step of `total`? last: after which one it was done before, or this
// generation began. Every multiple of the interval counts, passed over ones too, and the last step.
bool validation_due(std::int64_t completed, std::int64_t total, std::int64_t last,
                    std::int64_t interval);

struct ValidationOrder {
  const schedule::Plan& plan;
  int samples = 0;
  bool header_follows = true;  // of the next step; false after the last one
};

// parts.dataset: that of the validation. Returns the mean over its tokens on the last stage, NaN on
// the others. Errors of run_step(); after one the ports are of no use any more, the stage is as it
// was.
Result<double> run_validation(const StepParts& parts, const ValidationOrder& order,
                              const std::stop_token& stop);

}  // namespace weir::engine
