// SPDX-License-Identifier: Apache-2.0
// Graphs with more ideals than fit: a family of promising ones, and bounds that need no ideals.
#pragma once

#include <cstdint>

#include "operator/planner/graph/dag.h"
#include "operator/planner/graph/ideals.h"

namespace weir::planner {

// The prefixes of the linear orders, and of every size the ideals with the smallest cuts that are
// reached from those of the size before. Where a graph is narrow these are all ideals of it.
// At most about `most`.
Ideals promising_ideals(const Dag& dag, std::size_t most = 40'000);

// Bytes of the smallest cut of any ideal that is neither empty nor all, by maximum flow; 0 when the
// graph has too many pairs of a source and a sink to ask.
std::int64_t smallest_cut(const Dag& dag);

}  // namespace weir::planner
