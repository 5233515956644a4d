// SPDX-License-Identifier: Apache-2.0
// What workers measure of an average, for simulations: a pair is as fast as the slower of its
// nodes.
#pragma once

#include <algorithm>
#include <vector>

#include "worker/groups/node_rates.h"

namespace weir::test {

// rate(q): bytes per second of the node of replica q.
template <class Rate>
std::vector<groups::ReceivedRate> received_rates(int replica, const std::vector<int>& members,
                                                 const Rate& rate) {
  std::vector<groups::ReceivedRate> rates;
  for (const int q : members) {
    if (q != replica) rates.push_back({q, std::min(rate(replica), rate(q))});
  }
  return rates;
}

}  // namespace weir::test
