// SPDX-License-Identifier: Apache-2.0
// What a rank asks of a plan before it says READY. Pure: the facts are arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/schedule/plan.h"
#include "worker/schedule/validate.h"
#include "worker/stage/stage.h"

namespace weir::engine {

// Who this rank is in a plan's rank map.
struct Identity {
  std::string pod, pod_uid;
};

// This rank's place; nothing when the plan leaves it idle. The uid decides where both have one.
std::optional<schedule::RankPlace> place_of(const schedule::Plan& plan, const Identity& identity);

// Does `next` replace `current` between two steps on the same links? Only the tiers that change
// nothing but the schedule; a rejoin (incarnation > 0) never. The coordinator decides by the same
// rule (worker/coordinator/README.md "Plan switch").
bool switches_in_band(const schedule::Plan& current, const schedule::Plan& next, int incarnation);

// Bytes of one stage of the plan, from the model's description. saves: with the copy of a save, of
// a rank whose checkpoints are copied into the same memory.
schedule::StageMemory stage_memory(const schedule::Plan& plan, int stage, const stage::Model& model,
                                   bool saves = false);

// Why this rank cannot run the plan, one line per reason: broken rules, what is not built, memory
// above the limit (less kMemoryReserve). Empty: it can.
constexpr double kMemoryReserve = 0.10;  // worker/schedule/README.md "Memory of a stage"
struct Memory {
  std::int64_t limit = 0;
  bool saves = false;  // as above
};
std::vector<std::string> objections(const schedule::Plan& plan, const Identity& identity,
                                    const stage::Model& model, const Memory& memory);

}  // namespace weir::engine
