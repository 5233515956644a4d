// SPDX-License-Identifier: Apache-2.0
// The step from which a generation starts whose ranks stand where a failure left them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

struct MemberInventory {
  int member = 0;  // its worker index
  protocol::Inventory inventory;
};

struct RecoveryPoint {
  struct Holder {
    int member = 0;
    schedule::LayerRange layers;
    bool snapshot = false;  // protocol::Held::snapshot
    bool copy = false;      // protocol::Held::copy
    bool operator==(const Holder&) const = default;
  };
  std::int64_t step = 0;
  // Each layer is in one of them at least. Those that stand one step behind have its gradients, and
  // make the update with the verdict.
  std::vector<Holder> holders;
  std::optional<protocol::Verdict> verdict;  // of the step before `step`
};

// The highest step at which all layers 0 .. layers-1 are held, in the highest history that has run,
// by ranks of one model. A rank with complete gradients counts for the step after its own if
// another one holds that step and tells the verdict. A rank can begin from one holding only: if it
// also has a snapshot of the step, what it trains with counts, or where that lacks a layer, the
// snapshot. Copies of other ranks' snapshots stand in for layers that nobody holds else. Nothing if
// no step has all layers.
std::optional<RecoveryPoint> recovery_point(std::span<const MemberInventory> members, int layers);

// Why there is none, e.g. "no worker holds layers 4..7".
std::string why_no_point(std::span<const MemberInventory> members, int layers);

}  // namespace weir::coordinator
