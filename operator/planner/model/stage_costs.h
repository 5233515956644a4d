// SPDX-License-Identifier: Apache-2.0
// Costs of the stages of an existing plan, straight from the model: for adaptation, and for plans
// that no search made. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/planner/model/model.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/validate.h"

namespace weir::planner {

// Stage times and boundary bytes of a cut. ranks[s] runs stage s.
struct PipelineCosts {
  std::vector<schedule::StageTime> stages;
  std::vector<std::int64_t> boundary_bytes;
  std::vector<std::int64_t> static_bytes, stash_bytes;  // per stage; stash of one micro-batch
  std::vector<schedule::StageMemory> split;             // per stage, with split backwards
  std::vector<std::int64_t> memory_limit;  // per stage, reserve not taken off; 0 = unknown
};
// Nothing for a model without layers; ranges beyond the model are clipped. O(layers) for each
// stage.
PipelineCosts costs_of(const Model& model, const Cluster& cluster, const schedule::Plan& plan);

// Bytes of a micro-batch on the wire of a boundary, whose tensor has `raw_bytes`, by the plan's
// codecs.
std::int64_t wire_bytes(const Model& model, const schedule::Plan& plan, int boundary, bool forward,
                        std::int64_t raw_bytes);

}  // namespace weir::planner
