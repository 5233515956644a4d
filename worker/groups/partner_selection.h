// SPDX-License-Identifier: Apache-2.0
// Decides how long ready replicas wait for others before an average (worker/groups/README.md
// "Waiting"). Pure.
//
// Waiting costs each ready replica the same time. Its benefit is by how much the squared distances
// of all models to their mean shrink if m replicas join n ready ones: nm/(n+m) d, where d is the
// squared distance between the means of both. Replicas that shared the last average with the ready
// ones are therefore hardly waited for. Groups that have drifted apart are waited for until they
// arrive together again.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "worker/groups/distances.h"

namespace weir::groups {

using Time = std::chrono::nanoseconds;

// A replica whose step is running.
struct Running {
  Time due{0};  // when its step is expected to end
  int replica = 0;
};

struct Patience {
  double step_seconds = 0;    // the longest wait is half of this
  double window_seconds = 0;  // time that a squared distance of 1 per replica is worth
};

// Returns the time at which the replicas in `here` should stop waiting, or nothing if they should
// not wait. A late replica is waited for half as long again as its arrival was worth.
std::optional<Time> wait_until(std::span<const int> here, std::vector<Running> running,
                               const Distances& distances, const Patience& patience, Time now);

}  // namespace weir::groups
