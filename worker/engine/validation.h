// SPDX-License-Identifier: Apache-2.0
// Validation: the loss on data that is not trained on, computed between two steps by forwards
// through all stages of a replica. Each replica does all of it, so that none waits for another.
// With sync.mode Exact all replicas report the same loss. With equal micro-batches the loss is
// bit-equal for every cut. Engine thread only.
#pragma once

#include <cstdint>
#include <stop_token>

#include "worker/base/result.h"
#include "worker/engine/step.h"
#include "worker/schedule/plan.h"

namespace weir::engine {

// Interval and amount; equal on all ranks.
struct Validation {
  std::int64_t interval = 0;  // steps; 0 = never
  int samples = 0;            // minimum; rounded up to whole micro-batches
};

// True if a validation is due after the `completed`-th step of `total`. last: the step of the last
// validation or of the start of the generation. Due are every multiple of the interval, also one
// that was skipped, and the last step.
bool validation_due(std::int64_t completed, std::int64_t total, std::int64_t last,
                    std::int64_t interval);

struct ValidationOrder {
  const schedule::Plan& plan;
  int samples = 0;
  bool header_follows = true;  // the next step's header; false after the last step
};

// parts.dataset is the validation data. Returns the mean loss per token on the last stage, NaN on
// others. Errors are those of run_step(). After an error the links cannot be used any longer; the
// stage is unchanged.
Result<double> run_validation(const StepParts& parts, const ValidationOrder& order,
                              const std::stop_token& stop);

}  // namespace weir::engine
