// SPDX-License-Identifier: Apache-2.0
// Which schedules a job may run with (scheduling.md 5.2). Inside the room only.
#pragma once

#include <vector>

#include "operator/tuner/cost.h"
#include "operator/tuner/tune.h"

namespace weir::tuner {

// The current schedule first, then every other legal one, each once: Strict 1F1B; kFkB's caps for k
// in 2,3,4,6,8; with Hint also slack 2..8 and the lean caps at the 10, 50 and 90 % quantile of the
// transfer times. All within M, memory, and the user's k.
std::vector<schedule::Schedule> candidates(const Input& input, const LinkView& view);

}  // namespace weir::tuner
