// SPDX-License-Identifier: Apache-2.0
// A simulated step as one SVG picture: a row per stage, the two directions of its link below it; a
// headline with the step time, the idle share and what the colours mean.
#pragma once

#include <string>

#include "operator/planner/simulate_plan.h"

namespace weir::operator_app {

// Of every replica, one below the other, on one scale of time.
std::string svg_timeline(const planner::SimulatedPlan& simulated);

}  // namespace weir::operator_app
