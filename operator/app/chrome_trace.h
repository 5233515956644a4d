// SPDX-License-Identifier: Apache-2.0
// A simulated step as Chrome trace events, which Perfetto shows. Each stage of a replica has a
// track, and each direction of a link.
#pragma once

#include <string>

#include "operator/planner/tool/simulate_plan.h"

namespace weir::operator_app {

std::string chrome_trace(const planner::SimulatedPlan& simulated);

}  // namespace weir::operator_app
