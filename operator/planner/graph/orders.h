// SPDX-License-Identifier: Apache-2.0
// Linear orders of a Dag on which the engines find a good plan at once.
#pragma once

#include <vector>

#include "operator/planner/graph/dag.h"

namespace weir::planner {

// A few different topological orders, the best guess first: Kahn with a stack, with a queue, the
// smallest cut first, and the best prefixes of a beam scored by the running sum of cut bytes.
// Deterministic; at least one.
std::vector<std::vector<int>> linear_orders(const Dag& dag);

}  // namespace weir::planner
