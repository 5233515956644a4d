// SPDX-License-Identifier: Apache-2.0
// Makes the input of a costing from the facts. Pure.
#pragma once

#include "operator/adaptation/costing/cost.h"
#include "operator/facts/facts.h"
#include "operator/planner/model/model.h"

namespace weir::costing {

// Raw bytes of a micro-batch over those that a link carries under the codecs of a plan.
double raw_over_wire(const schedule::Plan& plan, const planner::Model& model,
                     const std::vector<std::int64_t>& boundary_bytes,
                     const estimator::LinkKey& link);
// Rates of the plan's links by the raw bytes of tensors: those of the wire, and more by what codecs
// save. So everything that costs a plan counts raw bytes.
void by_raw_bytes(const schedule::Plan& plan, const planner::Model& model,
                  const std::vector<std::int64_t>& boundary_bytes, estimator::RateVectors& rates);

// The facts must have a plan and a report. Without fresh metrics only the rates are missing.
Input costing_input(const facts::Facts& facts, const planner::Model& model);

}  // namespace weir::costing
