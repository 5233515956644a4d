// SPDX-License-Identifier: Apache-2.0
// Memory of adaptation between passes, a field for each tier. It may be lost with the leader
// (operator/README.md "Where state lives").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/adaptation/repartition/repartition.h"
#include "operator/adaptation/replace/replace.h"
#include "operator/adaptation/retune/tune.h"
#include "operator/adaptation/shares/policy.h"
#include "operator/facts/facts.h"

namespace weir::adaptation {

using facts::Time;

// A change of order, shares or sync mode that is not judged yet.
struct PlanChange {
  std::uint32_t revision = 0;
  schedule::Schedule schedule, previous;
  std::vector<int> previous_micro_batches;
  std::optional<schedule::SyncPolicy> previous_sync;  // set = the policy was changed
  std::string text;  // costing::describe of the new schedule, or the new shares
  double before_seconds = 0, predicted_gain = 0;
  std::int64_t applied_step = -1;    // -1 = lastSwitch has not said Applied yet
  std::vector<double> rates_before;  // rates in the order of Estimates::links
};

// A change of regroup or replace that is not judged yet.
struct RanksChange {
  schedule::Trigger tier = schedule::Trigger::kRegroup;
  std::uint32_t revision = 0;  // 0 = the plan after a replacement does not exist yet
  std::uint32_t after = 0;     // that plan's revision will be higher than this one
  std::optional<schedule::Plan> previous;
  std::string offer, what;
  double before_seconds = 0, predicted_gain = 0, move_seconds = 0;
  std::int64_t applied_step = -1;  // -1 = lastSwitch has not said Applied yet
  std::vector<facts::RememberedLink> links_before;
  bool is_retry = false;  // retries the previous cut
};

// A rollback, until its plan is in force or was refused too often (rollback.cpp).
struct Rollback {
  schedule::Plan plan;
  schedule::Trigger trigger = schedule::Trigger::kRetune;
  std::uint32_t revision = 0;  // of the newest request
  int tries = 0;
  std::int64_t refused_step = -1;  // step at which that request was refused; < 0 = it was not
};

// Offers of the last events PlanProposed, which are not repeated.
struct Announced {
  std::string retune, shares, ranks;
};

struct Memory {
  retune::State retune;
  shares::State shares;
  repartition::Memory repartition;
  replace::Memory replace;
  facts::History history;
  std::optional<Time> last_evaluation;
  std::optional<PlanChange> plan_change;
  std::optional<RanksChange> ranks_change;
  std::optional<Rollback> rollback;
  Announced announced;
};

}  // namespace weir::adaptation
