// SPDX-License-Identifier: Apache-2.0
// Checks of a plan that a rank makes before it answers READY. Pure: the facts are arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/schedule/plan.h"
#include "worker/schedule/validate.h"
#include "worker/stage/stage.h"

namespace weir::engine {

// The names of this rank in a plan's rank map.
struct Identity {
  std::string pod, pod_uid;
};

// The place of this rank; nothing if the plan leaves it idle. If both sides have a uid, the uid
// decides.
std::optional<schedule::RankPlace> place_of(const schedule::Plan& plan, const Identity& identity);

// Memory of one stage of the plan, from the description of the model. copies: includes so many
// copies of its values and moments, as saves and snapshots make them in the same memory.
schedule::StageMemory stage_memory(const schedule::Plan& plan, int stage, const stage::Model& model,
                                   int copies = 0);

// Reasons why this rank cannot run the plan, one line each: broken rules, unsupported features,
// memory above the limit less kMemoryReserve. Empty: it can run the plan.
constexpr double kMemoryReserve = 0.10;         // worker/schedule/README.md "Memory of a stage"
std::int64_t usable_bytes(std::int64_t limit);  // the limit less the reserve
struct Memory {
  std::int64_t limit = 0;
  bool saves = false;  // includes the copy of a save
  // With one replica also snapshots and a neighbor's copies (recovery.neighborCopies On). They lie
  // beside the stage, if `copies_room` < 0, else in so many bytes of host memory.
  bool copies = false;
  std::int64_t copies_room = -1;
};
// Bytes that the copies of this plan take in the memory of one stage's rank: its snapshots and, if
// there are several stages, the copies of a neighbor's (worker/schedule/neighbors.h).
std::int64_t copies_bytes(const schedule::Plan& plan, int stage, const stage::Model& model);
std::vector<std::string> objections(const schedule::Plan& plan, const Identity& identity,
                                    const stage::Model& model, const Memory& memory);

}  // namespace weir::engine
