// SPDX-License-Identifier: Apache-2.0
// Workers that lack processors: their CPU limit throttles them, or others use what they run on.
// Pure.
#pragma once

#include <vector>

#include "operator/explain/deviations.h"

namespace weir::explain {

// A worker that computes slowly or pauses, and had no processor for as long, has one deviation
// instead, which says why. Throttling is told without these, too: a limit that has always been too
// low makes nothing deviate.
void tell_lack_of_cpu(const Observed& observed, std::vector<Deviation>& all);

}  // namespace weir::explain
