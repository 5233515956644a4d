// SPDX-License-Identifier: Apache-2.0
// Which ideals a search looks at, and what its plans become. Inside the room only.
#pragma once

#include <vector>

#include "operator/planner/sync/model.h"
#include "operator/planner/sync/search.h"

namespace weir::planner {

// About `most` ideals with cheap boundaries, evenly spread over the work, and of the prefixes of
// the order of nodes; the empty one and all nodes are among them. Rising.
std::vector<std::size_t> few_ideals(const SyncModel& model, std::size_t most);

// A found plan with the indices of the family that `chosen` was taken from.
Candidate candidate_of(const SyncModel& model, const FoundPlan& plan,
                       const std::vector<std::size_t>& chosen);

// No plan takes longer: everything on the slowest devices, over the widest boundary.
double longest_step(const SyncModel& model, int most_stages);

// The Error of plan_sync: the node that fits nowhere, or all of them together.
Error does_not_fit(const Dag& dag, const SyncModel& model, int cap, int k);

}  // namespace weir::planner
