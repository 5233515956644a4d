// SPDX-License-Identifier: Apache-2.0
// What the tuner is told of the job. Private to this room; pure.
#pragma once

#include <vector>

#include "operator/controller/reconcile/pass.h"
#include "operator/planner/plan.h"
#include "operator/tuner/tune.h"

namespace weir::reconcile {

// Everything but the rates is there without fresh metrics, too. The pass has a plan and a report.
tuner::Input input_of(const Pass& pass, const planner::Model& model);
tuner::Settings settings_of(const api::JobSpec& spec);  // of tier retune
// The least free part of a device per stage, over its replicas; < 0 = unknown.
std::vector<double> free_memory(const Pass& pass);

}  // namespace weir::reconcile
