// SPDX-License-Identifier: Apache-2.0
// Which stage keeps the copy of which one while some of them leave. Pure.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace weir::coordinator {

// Copies of one step that a worker keeps at most (worker/app/snapshots.h). Only where others leave
// is it more than one.
inline constexpr int kMostCopies = 4;

// By stage: the stage that keeps its copy, -1 if none does. `keeper` is the usual one
// (schedule/neighbors.h), or -1. A copy whose keeper leaves or has failed goes to another stage
// that stays: to one with the fewest copies, of these to one on another node, of these to the next.
// The copies of stages that leave come first.
std::vector<int> keepers_that_stay(std::vector<int> keeper, const std::vector<std::string>& nodes,
                                   const std::set<int>& leaving, const std::set<int>& failed);

}  // namespace weir::coordinator
