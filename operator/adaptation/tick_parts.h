// SPDX-License-Identifier: Apache-2.0
// The parts of one tick. Private to this room.
#pragma once

#include <optional>
#include <string>

#include "operator/adaptation/adapt.h"
#include "operator/adaptation/costing/cost.h"
#include "operator/planner/model/model.h"

namespace weir::adaptation {

struct Evaluation {
  const facts::Facts& facts;
  Tick& tick;  // with the memory
  bool asked = false, memory_short = false;
  // Tier retune costs the plan in force; the tiers above use the results.
  std::optional<planner::Model> model = {};
  costing::Input input = {};
  retune::Decision decision = {};
  std::string lacks = {};  // without which nothing can be costed; "" = there is all
};

inline void say(Tick& tick, const char* type, const char* reason, std::string note) {
  tick.events.push_back({type, reason, std::move(note), "Adapt"});
}
bool tiers_above_enabled(const api::JobSpec& spec);  // regroup or replace
gate::Moment moment_of(const facts::Facts& facts, const Memory& memory);

// compare.cpp. Both plans on the network of now. Nothing = it is too early, or not enough is known.
std::optional<gate::Measured> compare(const facts::Facts& facts, const Change& change,
                                      const gate::Calibration& calibration);

// outcome.cpp. Each judges the last change after enough steps. A proposal returns to the plan
// before.
std::optional<gate::Proposal> judge_plan_change(const facts::Facts& facts, Tick& tick);
std::optional<gate::Proposal> judge_ranks_change(const facts::Facts& facts, Tick& tick);
void show_cooldowns(Tick& tick);

// rollback.cpp. Returns to a plan that was in force before the next plan, without a predicted gain.
gate::Proposal start_rollback(const facts::Facts& facts, Memory& memory, schedule::Plan plan,
                              schedule::Trigger trigger);
// The workers may have refused a rollback. It is requested again now, or after some more steps.
struct Continued {
  bool waits = false;
  std::optional<gate::Proposal> proposal;
};
Continued continue_rollback(const facts::Facts& facts, Tick& tick);

// take.cpp. Remembers what is needed to judge the proposal, and starts the clocks.
void take(const facts::Facts& facts, Tick& tick, gate::Proposal proposal);
// Emits event PlanProposed instead, unless the last one named the same offer.
void announce(Tick& tick, const gate::Proposal& proposal);

}  // namespace weir::adaptation
