// SPDX-License-Identifier: Apache-2.0
// Plans and simulations for people: fixed columns, no times of day but the run time it is given.
#pragma once

#include <string>
#include <vector>

#include "operator/app/plan_inputs.h"
#include "operator/planner/report.h"
#include "operator/planner/simulate_plan.h"

namespace weir::operator_app {

// `seconds`: how long planning took.
std::string plan_table(const PlanInputs& inputs, const planner::PlanReport& report, double seconds);
std::string simulation_table(const schedule::Plan& plan, const planner::SimulatedPlan& simulated);
// One row a stage, `width` columns for the step: digits F, letters B, dots idle.
std::string text_timeline(const planner::SimulatedReplica& replica, double step_seconds, int width);

// Columns padded to their widest entry, two blanks between them.
std::string columns(const std::vector<std::vector<std::string>>& rows);
std::string fixed(double value, int places);
std::string giga(std::int64_t bytes);  // "35.1"

}  // namespace weir::operator_app
