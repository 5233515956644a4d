// SPDX-License-Identifier: Apache-2.0
// What retuning cannot repair: links that are the bottleneck, the time lost against free links, and
// devices without memory (operator/tuner/README.md "Escalation"). Inside the room only.
#pragma once

#include <optional>

#include "operator/tuner/cost.h"

namespace weir::tuner {

std::vector<BoundLink> bound_links(const Input& input, const LinkView& view);

// Adds the steps since the last call to the state's loss. Simulates one step when plan, profile or
// baselines changed.
void sum_loss(const Input& input, const LinkView& view, Coster& coster, State& state);

// Caps one lower where the device has less than 2 % free, to take at the next boundary at once; the
// state keeps the limit. Nothing where no cap can be lowered or no memory is short.
std::optional<Costed> memory_alarm(const Input& input, State& state);

}  // namespace weir::tuner
