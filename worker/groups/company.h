// SPDX-License-Identifier: Apache-2.0
// Says whom it is worth waiting for before an average (worker/groups/README.md "Waiting"). Pure.
//
// Waiting costs each that is ready as much time. What it brings is by how much the squared
// distances of all models to their mean shrink when m others join n that are here, their means at a
// squared distance d: nm/(n+m) d. So those with the same average as the ones here, who tend to
// arrive together again, are hardly waited for, and groups that have gone apart are, until they are
// in step again.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "worker/groups/distances.h"

namespace weir::groups {

using Time = std::chrono::nanoseconds;

struct Running {
  Time due{0};  // the end of its step
  int replica = 0;
};

struct Patience {
  double step_seconds = 0;    // never longer than half of one: the others may as well wait
  double window_seconds = 0;  // for a squared distance of one step a replica
};

// When those who are here should go on without those that have not come by then; nothing: now. Who
// is late is waited for half as long as was worth it.
std::optional<Time> wait_until(std::span<const int> here, std::vector<Running> running,
                               const Distances& distances, const Patience& patience, Time now);

}  // namespace weir::groups
