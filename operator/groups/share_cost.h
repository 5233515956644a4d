// SPDX-License-Identifier: Apache-2.0
// What uneven shares have cost: against even ones, from the measured times of the same steps. The
// times of a replica with another share are known (shares.h), so this is no prediction. Pure.
#pragma once

#include <vector>

#include "operator/groups/step_times.h"

namespace weir::group_policy {

// In steps: the time of one step with even shares is 1. Gains only make good what was lost before,
// so over any stretch of steps no more was lost than `behind` plus what has lapsed.
struct Account {
  double behind = 0;                // all shares so far; lapses by kLapse a step
  double lately = 0;                // the shares in force
  estimator::SystemTime counted{};  // end of the newest interval that is in it
};
constexpr double kLapse = 0.005;  // a step: 5 in 1,000

// Adds the intervals that are newer; they were measured with these shares.
void add_intervals(Account& account, Intervals intervals, const std::vector<int>& shares,
                   int stages);

}  // namespace weir::group_policy
