// SPDX-License-Identifier: Apache-2.0
// Makes the input of a costing from the facts. Pure.
#pragma once

#include "operator/adaptation/costing/cost.h"
#include "operator/facts/facts.h"
#include "operator/planner/model/model.h"

namespace weir::costing {

// The facts must have a plan and a report. Without fresh metrics only the rates are missing.
Input costing_input(const facts::Facts& facts, const planner::Model& model);

}  // namespace weir::costing
