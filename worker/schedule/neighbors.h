// SPDX-License-Identifier: Apache-2.0
// Which rank keeps a copy of which rank's snapshot. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/schedule/plan.h"

namespace weir::schedule {

// Host memory that snapshots of a stage take, as copies of its values and moments: the last one,
// the next one, and the copy from which that is written.
inline constexpr int kSnapshotCopies = 3;
// Copies of a neighbor's: the last one and the next one, which is written as it comes.
inline constexpr int kNeighborCopies = 2;
// Bytes of a copy per byte of the stage's parameters: the value and two moments.
inline constexpr int kCopyFactor = 3;

struct Neighbors {
  // By stage of a plan with one replica: the stage that keeps its copy. Each keeps one, so all need
  // the same memory. Empty if there is one stage only.
  std::vector<int> keeper;
  int on_same_node = 0;  // copies that lie on the node of their stage; as few as the plan allows
  int least_protected = -1;  // the first stage with such a copy
};

// The keeper is the next stage, cyclic, or the one so many stages further with which no copy lies
// on its own node. Where no distance does that, the stages are counted node by node.
Neighbors neighbors(const Plan& plan);

// Why a plan is refused if recovery.neighborCopies is On; numbers in bytes.
std::string no_room_for_copies(std::int64_t needed, std::int64_t free);

}  // namespace weir::schedule
