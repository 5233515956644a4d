// SPDX-License-Identifier: Apache-2.0
// Tells what became of a plan, from the events that the operator wrote. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/cli/job_view.h"

namespace weir::cli {

// The parts of the note of an event PlanOutcome (operator/adaptation/gate/README.md "Outcome"), as
// in "revision 2: measured +7.0 % (+-0.9) over 10 steps against 18 on the same network; predicted
// for this network +8.4 %, when decided +8.4 %; step 0.84 s -> 0.79 s".
struct OutcomeNote {
  std::int64_t revision = 0;
  std::string measured;   // "+7.0 % (+-0.9)"
  std::string predicted;  // "+8.4 %", when the plan was decided
  std::string evidence;   // "10 steps against 18 on the same network"
};
std::optional<OutcomeNote> read_outcome(std::string_view note);

struct Judgement {
  std::string measured;  // "" = not measured
  std::string verdict;   // "kept: 10 steps against 18", "refused: ..."; "" = none
};
// events: oldest first.
Judgement judgement_of(std::int64_t revision, const std::vector<JobEvent>& events);

// How a plan differs from the one before, e.g. "k 1 -> 2"; previous: null = it is not known.
std::string difference(const schedule::Plan* previous, const schedule::Plan& plan);

}  // namespace weir::cli
