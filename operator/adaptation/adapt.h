// SPDX-License-Identifier: Apache-2.0
// One tick of adaptation: judges the last change, then asks the tiers, the cheapest first
// (operator/adaptation/README.md). Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "operator/adaptation/gate/proposal.h"
#include "operator/adaptation/memory.h"
#include "operator/api/encode.h"
#include "operator/facts/facts.h"

namespace weir::adaptation {

// Clocks of the tiers as status.adaptation shows them.
struct StatusClocks {
  std::optional<Time> retune_last_change, regroup_last_change, replace_last_change,
      compress_last_change;
  int regroup_cooldown_seconds = 0, replace_cooldown_seconds = 0, compress_cooldown_seconds = 0;
};

struct Tick {
  Memory memory;
  std::optional<gate::Proposal> proposal;    // at most one change a tick
  std::vector<api::Event> events;            // come before the proposal is carried out
  std::vector<api::Event> events_of_change;  // come after it
  StatusClocks clocks;
  // The gain of the plan in force and its standard error; "" = it was not judged in this tick.
  std::string measured_gain_percent, measured_gain_error;
  std::optional<gate::Observation> judged;  // its prediction, where that could be told for now
  // How far the step is above what no order can beat, in percent; unset = unknown, or not asked in
  // this tick.
  std::optional<int> bound_simulated, bound_measured;
  std::string missed;         // why the condition Degraded shows a missed gain; "" = none
  bool replan_taken = false;  // the request for an evaluation has been followed
  std::optional<Time> wake;   // when the next evaluation is due; nothing = a metrics tick wakes
};

// The facts must have a plan in force that all members run, and a fresh report. replan: the user
// demands an evaluation (weir.dev/replan).
Tick tick(facts::Facts facts, Memory memory, bool replan);

// A tier is asked with what this tick knows, and answers with what it would change.
struct Evaluation;
struct Answer {
  std::optional<gate::Proposal> proposal;
  bool last = false;  // no dearer tier is asked
};
struct TierEntry {
  const char* name;
  Answer (*ask)(Evaluation&);
};
std::span<const TierEntry> tiers();  // cheapest first

// The order and the codecs that retune and compress would choose under these conditions, where no
// tick asks them: in mode Off. Nothing = not enough is known.
struct Best {
  std::optional<gate::Considered> order, codecs;
};
Best best_order(const facts::Facts& facts, const planner::Model& model,
                const costing::Conditions& conditions);

gate::Tier tier_of(gate::Kind kind);  // whose predictions a change belongs to

// Call it when the workers have refused a plan. The change is kept out until the members change.
void refused(Memory& memory, const schedule::Plan* plan, std::uint32_t revision);
// Call it when the members change. All that depends on the old ranks is forgotten; cooldown clocks
// and links stay.
void forget_ranks(Memory& memory);

}  // namespace weir::adaptation
