// SPDX-License-Identifier: Apache-2.0
// Micro-batches of each replica, so that all end their step at the same time
// (operator/groups/README.md "Shares"). Pure.
#pragma once

#include <vector>

namespace weir::group_policy {

// A replica that takes `seconds` for a step of m micro-batches over S stages takes
// seconds x (m' + S - 1) / (m + S - 1) for one of m'.
struct SharesInput {
  std::vector<double> seconds;  // T_p at the current share; all > 0
  std::vector<int> shares;      // now, each >= 1
  int stages = 1;               // S
  int least_share = 1;          // no share may be smaller: the plan's largest cap (validate.h)
  bool limit_change = true;     // at most max(1, 50 %) of a share at once
};

// The shares with the same sum whose slowest replica is fastest; of equal ones those that give each
// micro-batch to the lowest index. A share below least_share may only grow. Exact within these
// limits. O(sum log P).
std::vector<int> balanced_shares(const SharesInput& input);

// As even as the sum allows; the first ones get the rest.
std::vector<int> even_shares(const std::vector<int>& shares);

// Seconds of the slowest replica with these shares.
double slowest_seconds(const SharesInput& input, const std::vector<int>& shares);

}  // namespace weir::group_policy
