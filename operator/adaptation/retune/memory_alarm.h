// SPDX-License-Identifier: Apache-2.0
// Devices that run out of memory (operator/adaptation/retune/README.md "Decision").
#pragma once

#include <optional>
#include <vector>

#include "operator/adaptation/retune/tune.h"

namespace weir::retune {

// Whether a device has less than 2 % of its memory free. Then tune() lowers the cap of its stage at
// once, even if rates are unknown.
bool memory_is_short(const std::vector<double>& free_memory);

// If a device has less than 2 % of its memory free, the current plan with this stage's cap lowered
// by one; the state keeps the limit. Nothing if no memory is short or no cap can be lowered.
std::optional<Costed> memory_alarm(const Input& input, State& state);

}  // namespace weir::retune
