// SPDX-License-Identifier: Apache-2.0
// Ideals of a model, kept for planning again with other links. Inside the room only.
#pragma once

#include <memory>

#include "operator/planner/graph/ideals.h"
#include "operator/planner/setting.h"

namespace weir::planner {

// All ideals of the setting's graph; the prefixes of the model's order if the request wants it
// kept; a promising family if there are too many.
std::shared_ptr<const Ideals> ideals_for(const Setting& setting, const Limits& limits,
                                         PlanCache* cache);

}  // namespace weir::planner
