// SPDX-License-Identifier: Apache-2.0
// Costs of the cuts of earlier planners in our model, on the same devices: placed and
// simulated as ours, each with the best k that fits (`weir-operator plan --compare`). Pure.
#pragma once

#include <string>

#include "operator/planner/plan.h"

namespace weir::planner {

enum class Rival : unsigned char {
  kPipedream,      // smallest bottleneck with transfers, exact
  kDappleFormula,  // least sum + (M-1) max + tail
  kEven            // as many layers on every stage, as many stages as ours
};

// Ours: the report of the same input; its micro-batch size is used.
Comparison compare(const Model& model, const Cluster& cluster, const Request& request,
                   const Limits& limits, Rival rival, const PlanReport& ours);

const char* name(Rival rival);  // "pipedream" "dapple-formula" "even"

}  // namespace weir::planner
