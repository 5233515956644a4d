// SPDX-License-Identifier: Apache-2.0
// Chooses the micro-batches of each replica so that all replicas end their step at the same time
// (operator/adaptation/shares/README.md "Shares"). Pure.
#pragma once

#include <vector>

namespace weir::shares {

// If a replica takes `seconds` for a step of m micro-batches over S stages, it takes
// seconds x (m' + S - 1) / (m + S - 1) for a step of m'.
struct SharesInput {
  std::vector<double> seconds;  // T_p with the current share; all > 0
  std::vector<int> shares;      // current shares, each >= 1
  int stages = 1;               // S
  int least_share = 1;          // no share may become smaller: the plan's largest cap (validate.h)
  bool limit_change = true;     // a share changes by at most max(1, 50 %)
};

// The shares with the same sum whose slowest replica is fastest. If several are equal,
// micro-batches go to lower indices. A share below least_share may only grow. Exact within these
// limits. O(sum log P).
std::vector<int> balanced_shares(const SharesInput& input);

// Shares with the same sum, as even as possible; the first replicas get the remainder.
std::vector<int> even_shares(const std::vector<int>& shares);

// Seconds of a step of the slowest replica with these shares.
double slowest_seconds(const SharesInput& input, const std::vector<int>& shares);

}  // namespace weir::shares
