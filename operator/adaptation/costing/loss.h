// SPDX-License-Identifier: Apache-2.0
// Problems that retuning cannot solve: links that are the bottleneck, and time lost against free
// links (operator/adaptation/costing/README.md "Loss").
#pragma once

#include <vector>

#include "operator/adaptation/costing/cost.h"

namespace weir::costing {

struct BoundLink {
  estimator::LinkKey link;
  double seconds = 0;  // median of one transfer over V, >= 0.9 x the slowest stage's f+b
};
std::vector<BoundLink> bound_links(const Input& input, const LinkView& view);

// Adds the loss of the steps after the last call to the state. Simulates one step if plan, profile
// or baselines have changed.
void sum_loss(const Input& input, const LinkView& view, Coster& coster, State& state);

}  // namespace weir::costing
