// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step, as a function of the step alone. Pure.
#pragma once

#include <cstdint>

#include "worker/stage/stage.h"

namespace weir::stage {

// False: the rate is constant after the warm-up, so that the number of steps does not matter.
bool falls(const ModelOptions& options);
// The ratio of the last rate to --lr, and the steps over which it falls: as given, else the
// defaults of the schedule.
double least_ratio(const ModelOptions& options);
std::int64_t decay_steps(const ModelOptions& options);
// kInvalid names the option that does not fit.
Status check_schedule(const ModelOptions& options);

// The warm-up is linear from rate / warmup_steps. Then follows one of the schedules: "constant";
// "cosine", half a cosine down to least_ratio() at total_steps (Brown et al., "GPT-3", 2020, B);
// "linear", a line down to it; "wsd", constant until the last decay_steps(), then a line (Hu et
// al., "MiniCPM", 2024).
double learning_rate(const ModelOptions& options, std::int64_t step);

}  // namespace weir::stage
