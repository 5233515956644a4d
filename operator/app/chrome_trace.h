// SPDX-License-Identifier: Apache-2.0
// A simulated step as Chrome trace events, for Perfetto: one track per stage of a replica and per
// link and direction.
#pragma once

#include <string>

#include "operator/planner/simulate_plan.h"

namespace weir::operator_app {

std::string chrome_trace(const planner::SimulatedPlan& simulated);

}  // namespace weir::operator_app
