// SPDX-License-Identifier: Apache-2.0
// The part of a plan that is fixed before the cut: devices, times, micro-batches. Inside the room.
#pragma once

#include <vector>

#include "operator/planner/layout.h"

namespace weir::planner {

// "b -> a" of the first edge that contradicts the order of layers, or nothing.
std::string edge_that_runs_back(const Model& model);
// The one asked for, or every divisor that makes at most 512 micro-batches.
Result<std::vector<int>> micro_batch_sizes(const Request& request);
// All but the request are kept by pointer.
Result<Setting> setting_of(const Model& model, const Cluster& cluster, const Request& request,
                           const placement::Topology& topology, int micro_batch_size);
// The first stage that no device may run when each takes the first that fits.
int stage_without_rank(const Setting& setting);
// Seconds of a step that no plan is below, whatever its cut: fair share of all devices, and the
// heaviest layer alone. For where no better bound is known.
double simple_bound(const Setting& setting);
std::string gb(std::int64_t bytes);  // "12.3"
// One line with what is too large, with the least demanding plan: most stages, k_min.
Error does_not_fit(const Setting& setting);

}  // namespace weir::planner
