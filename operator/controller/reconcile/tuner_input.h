// SPDX-License-Identifier: Apache-2.0
// Makes the tuner's input from the pass. Private to this room; pure.
#pragma once

#include <vector>

#include "operator/controller/reconcile/pass.h"
#include "operator/planner/model/model.h"
#include "operator/tuner/tune.h"

namespace weir::reconcile {

// The pass must have a plan and a report. Without fresh metrics only the rates are missing.
tuner::Input input_of(const Pass& pass, const planner::Model& model);
tuner::Settings settings_of(const api::JobSpec& spec);  // of tier retune
// By stage, the smallest free fraction of a device's memory over all replicas; < 0 = unknown.
std::vector<double> free_memory(const Pass& pass);

}  // namespace weir::reconcile
