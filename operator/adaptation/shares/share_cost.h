// SPDX-License-Identifier: Apache-2.0
// The cost of uneven shares against even ones, from measured times of the same steps. The time that
// a replica takes with another share is known (shares.h), so this is no prediction. Pure.
#pragma once

#include <vector>

#include "operator/adaptation/shares/step_times.h"

namespace weir::shares {

// In steps: the time of one step with even shares is 1. Gains reduce a cost, but not below 0, so
// the loss over any number of steps is at most all_shares plus what has lapsed.
struct ShareCost {
  double all_shares = 0;            // cost of all shares so far; kLapse of a step lapses per step
  double current_shares = 0;        // cost of the shares in force
  estimator::SystemTime counted{};  // end of the newest interval that was added
};
constexpr double kLapse = 0.005;  // 5 steps in 1,000

// Adds the intervals that are newer than `counted`; they were measured with these shares.
void add_intervals(ShareCost& share_cost, Intervals intervals, const std::vector<int>& shares,
                   int stages);

}  // namespace weir::shares
