// SPDX-License-Identifier: Apache-2.0
// Splits the backwards of a layout whose cut, servers and caps are chosen: by the functions that
// the tuner uses, too (worker/schedule/search_split.h). Inside the room only.
#pragma once

#include "operator/planner/decide.h"

namespace weir::planner {

// The layout with split backwards and the shortest step that fits into memory; of steps within
// request.tie_of_k the one that holds least. Unchanged if the request does not split, if no layer
// does, or if the step would not get shorter.
Layout with_best_split(const Setting& setting, const Layout& layout, EventBudget& budget);

}  // namespace weir::planner
