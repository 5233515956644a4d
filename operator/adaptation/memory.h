// SPDX-License-Identifier: Apache-2.0
// Memory of adaptation between passes, a field for each tier. It may be lost with the leader
// (operator/README.md "Where state lives").
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "operator/adaptation/compression/compression.h"
#include "operator/adaptation/costing/conditions.h"
#include "operator/adaptation/gate/proposal.h"
#include "operator/adaptation/repartition/repartition.h"
#include "operator/adaptation/replace/replace.h"
#include "operator/adaptation/retune/tune.h"
#include "operator/adaptation/shares/policy.h"
#include "operator/facts/facts.h"

namespace weir::adaptation {

using facts::Time;

// A change that is not judged yet.
struct Change {
  gate::Kind kind = gate::Kind::kRetune;
  std::uint32_t revision = 0;              // 0 = the plan after a replacement does not exist yet
  std::uint32_t after = 0;                 // that plan's revision will be higher than this one
  std::optional<schedule::Plan> previous;  // the plan before
  bool can_return = true;                  // to the plan before
  std::string offer;                       // its name in the record of its kind
  std::string what;                        // the change in a few words; may be empty
  costing::Evidence before;                // of the plan before, when the change was decided
  double predicted_gain = 0, move_seconds = 0;
  std::int64_t applied_step = -1;  // -1 = lastSwitch has not said Applied yet
};

// A rollback, until its plan is in force or was refused too often (rollback.cpp).
struct Rollback {
  schedule::Plan plan;
  schedule::Trigger trigger = schedule::Trigger::kRetune;
  std::uint32_t revision = 0;  // of the newest request
  int tries = 0;
  std::int64_t refused_step = -1;  // step at which that request was refused; < 0 = it was not
};

// Offers of the last events PlanProposed, which are not repeated; for `replan` what the last event
// ReplanWaits named.
struct Announced {
  std::string retune, shares, compression, ranks, replan;
};

struct Memory {
  retune::State retune;
  shares::State shares;
  compression::Memory compression;
  repartition::Memory repartition;
  replace::Memory replace;
  facts::History history;
  gate::Calibration calibration;        // of all jobs of this leader, where the controller lends it
  gate::Considered order, codecs, cut;  // of retune, compress and regroup
  std::optional<Time> last_evaluation;
  std::optional<Change> plan_change;   // of retune, shares or compress
  std::optional<Change> ranks_change;  // of regroup or replace
  std::optional<Rollback> rollback;
  Announced announced;
};

}  // namespace weir::adaptation
