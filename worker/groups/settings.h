// SPDX-License-Identifier: Apache-2.0
// The sync policy of a plan, which the operator chooses and the group scheduler follows
// (worker/groups/README.md "Gates"). Pure data.
#pragma once

namespace weir::groups {

struct Settings {
  int group_size_min = 2, group_size_max = 2;  // replicas
  double max_staleness = 6;  // tau: steps that a replica may be ahead of the slowest living replica
  // Omega: percent of a step that a squared distance of 1 is worth waiting.
  int grace_window_percent = 15;
  int connect_every = 10;  // B: steps within which the groups connect all living replicas
  bool operator==(const Settings&) const = default;
};

// Default of the largest group: all replicas up to 4, 4 up to 15 replicas, then 8.
constexpr int usual_group_size_max(int replicas) {
  return replicas <= 4 ? (replicas < 2 ? 2 : replicas) : replicas < 16 ? 4 : 8;
}

}  // namespace weir::groups
