// SPDX-License-Identifier: Apache-2.0
// Which rank keeps a copy of which rank's snapshot. Pure.
#pragma once

#include <vector>

#include "worker/schedule/plan.h"

namespace weir::coordinator {

struct Neighbors {
  // By stage of a plan with one replica: the stage that keeps its copy. Each keeps one, so all need
  // the same memory. Empty if there is one stage only.
  std::vector<int> keeper;
  int on_same_node = 0;  // copies that lie on the node of their stage; as few as the plan allows
  int least_protected = -1;  // the first stage with such a copy
};

// The keeper is the next stage, cyclic, or the one so many stages further with which no copy lies
// on its own node. Where no distance does that, the stages are counted node by node.
Neighbors neighbors(const schedule::Plan& plan);

}  // namespace weir::coordinator
