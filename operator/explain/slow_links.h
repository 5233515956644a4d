// SPDX-License-Identifier: Apache-2.0
// Links that are slower than usual, between stages and of sums over replicas, by what explains
// them: a pair of nodes, or a port. Pure.
#pragma once

#include <vector>

#include "operator/explain/deviations.h"

namespace weir::explain {

// A port explains the slow links to more than one other node. Those of the node with most of them
// come first.
std::vector<Deviation> slow_links_of(const Observed& observed);

}  // namespace weir::explain
