// SPDX-License-Identifier: Apache-2.0
// A simulated step as one SVG picture. Each stage has a row with the two directions of its link
// below it. The headline shows the step time, the idle share and the meaning of the colours.
#pragma once

#include <string>

#include "operator/planner/tool/simulate_plan.h"

namespace weir::operator_app {

// Draws all replicas below each other on one time scale.
std::string svg_timeline(const planner::SimulatedPlan& simulated);

}  // namespace weir::operator_app
