// SPDX-License-Identifier: Apache-2.0
// Makes the tuner's input from the facts. Private to this room; pure.
#pragma once

#include <vector>

#include "operator/facts/facts.h"
#include "operator/planner/model/model.h"
#include "operator/tuner/tune.h"

namespace weir::reconcile {

// The facts must have a plan and a report. Without fresh metrics only the rates are missing.
tuner::Input input_of(const facts::Facts& facts, const planner::Model& model);
tuner::Settings settings_of(const api::JobSpec& spec);  // of tier retune

}  // namespace weir::reconcile
