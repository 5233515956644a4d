// SPDX-License-Identifier: Apache-2.0
// Staleness, measured as progress (worker/groups/README.md "Staleness"). The clock of a replica
// advances by m_p/M with each step, and the members of an average take the weighted mean of their
// clocks. Steps since the start would not do: with a bound on them, one slow replica would slow
// down all. Pure.
#pragma once

#include <span>
#include <vector>

namespace weir::groups {

// Weighted mean of the progress; weights sum to 1.
double mixed_progress(std::span<const double> progress, std::span<const double> weights);

// Returns which of the groups may go on: those whose progress after the average is at most
// max_staleness ahead of the slowest of all groups and of `others`, the progress of replicas that
// are in no group. The slowest group may always go on if `others` is empty.
std::vector<bool> may_go_on(const std::vector<double>& groups, const std::vector<double>& others,
                            double max_staleness);

}  // namespace weir::groups
