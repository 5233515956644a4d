// SPDX-License-Identifier: Apache-2.0
// What workers measure of an average, for simulations: a pair is as fast as the slower of its
// ports.
#pragma once

#include <algorithm>
#include <vector>

#include "worker/groups/node_rates.h"

namespace weir::test {

// port(q): bytes per second of the port of replica q.
template <class Port>
std::vector<groups::ReceivedRate> received_rates(int replica, const std::vector<int>& members,
                                                 const Port& port) {
  std::vector<groups::ReceivedRate> rates;
  for (const int q : members) {
    if (q != replica) rates.push_back({q, std::min(port(replica), port(q))});
  }
  return rates;
}

}  // namespace weir::test
