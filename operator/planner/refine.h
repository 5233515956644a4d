// SPDX-License-Identifier: Apache-2.0
// A complete plan that the event simulator judges, and the search around it. Inside the room only.
#pragma once

#include <vector>

#include "operator/planner/chain.h"
#include "operator/planner/cost.h"
#include "operator/planner/slots.h"

namespace weir::planner {

struct ChainCandidate {
  const Chain* chain = nullptr;
  const Slots* slots = nullptr;
  Shape shape;
  Cut cut;
  std::vector<int> devices;               // by stage
  double objective = 0, lower_bound = 0;  // of the cost model
  double seconds = 0;                     // simulated step
};

// Step time with the optimizer's visible part; huge if the schedule cannot run.
double simulated(const ChainCandidate& candidate);
// The best of the candidate and of cuts with lighter late stages, each moved layer by layer while
// the simulated step gets shorter. Keeps ranks, shape and the memory limit.
ChainCandidate refined(const ChainCandidate& candidate);

}  // namespace weir::planner
