// SPDX-License-Identifier: Apache-2.0
// Plans and simulations as tables for people. Equal input gives equal text.
#pragma once

#include <string>
#include <vector>

#include "operator/app/plan_inputs.h"
#include "operator/planner/report.h"
#include "operator/planner/tool/simulate_plan.h"

namespace weir::operator_app {

// seconds: the time that planning took.
std::string plan_table(const PlanInputs& inputs, const planner::PlanReport& report, double seconds);
std::string simulation_table(const schedule::Plan& plan, const planner::SimulatedPlan& simulated);
// One row per stage; the step is `width` characters wide. Digits are forward passes, letters
// backward passes, dots idle time.
std::string text_timeline(const planner::SimulatedReplica& replica, double step_seconds, int width);

// Text in which each column is as wide as its widest entry, with two blanks between columns.
std::string columns(const std::vector<std::vector<std::string>>& rows);
std::string fixed(double value, int places);
std::string giga(std::int64_t bytes);  // "35.1"

}  // namespace weir::operator_app
