// SPDX-License-Identifier: Apache-2.0
// Problems that retuning cannot solve: links that are the bottleneck, time lost against free links,
// and devices that run out of memory (operator/tuner/README.md "Escalation"). Only this room
// includes it.
#pragma once

#include <optional>

#include "operator/tuner/cost.h"

namespace weir::tuner {

std::vector<BoundLink> bound_links(const Input& input, const LinkView& view);

// Adds the loss of the steps after the last call to the state. Simulates one step if plan, profile
// or baselines have changed.
void sum_loss(const Input& input, const LinkView& view, Coster& coster, State& state);

// If a device has less than 2 % of its memory free, the current plan with this stage's cap lowered
// by one; the state keeps the limit. Nothing if no memory is short or no cap can be lowered.
std::optional<Costed> memory_alarm(const Input& input, State& state);

}  // namespace weir::tuner
