// SPDX-License-Identifier: Apache-2.0
// Staleness as progress (worker/groups/README.md "Staleness"): a replica's clock advances by m_p/M
// with each step, and all members of an average take the weighted mean of theirs. A bound on the
// steps that a replica lags behind since the start makes one slow replica the speed of all. Pure.
#pragma once

#include <span>
#include <vector>

namespace weir::groups {

// Weighted mean; weights sum to 1.
double mixed_progress(std::span<const double> progress, std::span<const double> weights);

// Which of these groups may go on: all but those whose progress after the average is more than
// max_staleness ahead of the slowest, be it another group or a replica that is elsewhere (its
// progress in others). The slowest group may always go on when others is empty.
std::vector<bool> may_go_on(const std::vector<double>& groups, const std::vector<double>& others,
                            double max_staleness);

}  // namespace weir::groups
