// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/shares/share_cost.h"

#include <algorithm>

#include "operator/adaptation/shares/shares.h"

namespace weir::shares {

void add_intervals(ShareCost& share_cost, Intervals intervals, const std::vector<int>& shares,
                   int stages) {
  const std::vector<int> even = even_shares(shares);
  for (const estimator::ReplicaInterval& interval : intervals) {
    if (interval.end <= share_cost.counted || interval.replicas.size() != shares.size()) continue;
    share_cost.counted = interval.end;
    SharesInput times{.seconds = {}, .shares = shares, .stages = stages};
    for (const auto& [replica, time] : interval.replicas) times.seconds.push_back(time.seconds);
    const auto steps = static_cast<double>(interval.replicas.begin()->second.steps);
    const double lost = steps * (slowest_seconds(times, shares) / slowest_seconds(times, even) - 1);
    share_cost.all_shares = std::max(0.0, share_cost.all_shares + lost - kLapse * steps);
    share_cost.current_shares = std::max(0.0, share_cost.current_shares + lost);
  }
}

}  // namespace weir::shares
