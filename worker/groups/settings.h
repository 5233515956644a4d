// SPDX-License-Identifier: Apache-2.0
// The fields of the plan's sync policy, which the operator chooses and the group scheduler keeps to
// (worker/groups/README.md "Gates"). Pure data.
#pragma once

namespace weir::groups {

struct Settings {
  int group_size_min = 2, group_size_max = 2;  // replicas
  double max_staleness = 6;       // tau: steps of progress ahead of the slowest live replica
  int grace_window_percent = 15;  // omega, of a step: how long the news of a step is waited for
  int connect_every = 10;         // B: steps within which all live replicas are connected by groups
  bool operator==(const Settings&) const = default;
};

// The largest group by the number of replicas: all of them up to 4, 4 up to 15, then 8.
constexpr int usual_group_size_max(int replicas) {
  return replicas <= 4 ? (replicas < 2 ? 2 : replicas) : replicas < 16 ? 4 : 8;
}

}  // namespace weir::groups
