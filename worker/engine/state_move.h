// SPDX-License-Identifier: Apache-2.0
// Moving state to another cut or rank map: what a rank keeps, what it fetches and from whom, and
// the layers that it holds for others until the new generation runs. State is the parameters and
// both moments of the optimizer; nothing else passes from step to step.
#pragma once

#include <memory>
#include <vector>

#include "worker/base/result.h"
#include "worker/engine/plan_rules.h"
#include "worker/schedule/plan.h"
#include "worker/stage/stage.h"
#include "worker/transport/state_exchange.h"

namespace weir::engine {

struct MovePart {
  std::size_t holder = 0;  // index in plan.holders
  schedule::LayerRange layers;
  bool operator==(const MovePart&) const = default;
};
struct MoveParts {
  std::vector<schedule::LayerRange> kept;  // that this rank holds already
  std::vector<MovePart> fetched;
};

// This rank's entry in plan.holders; null: it holds nothing.
const schedule::LayerHolder* holder_of(const schedule::Plan& plan, const Identity& identity);
// How the layers of this rank's place come together; replicas take from different holders. Empty
// without a place. kInvalid: a layer that nobody holds. Pure.
Result<MoveParts> parts_of_move(const schedule::Plan& plan, const Identity& identity);

// The memory of these layers of the stage: for each parameter its value and its two moments.
std::vector<transport::LayerMemory> memory_of(stage::Stage& stage, schedule::LayerRange layers);
// Between two stages that both hold these layers. kInvalid: their parameters differ.
Status copy_layers(stage::Stage& from, stage::Stage& to, schedule::LayerRange layers);

// Offers a stage's layers as long as it lives. The stage may be taken back; its memory is then
// somebody else's care, and must stay as it is until this object is gone.
class OfferedState {
 public:
  OfferedState(transport::StateExchange& exchange, const transport::StateKey& key,
               std::unique_ptr<stage::Stage> stage, schedule::LayerRange layers);
  ~OfferedState() { exchange_.withdraw(); }
  OfferedState(const OfferedState&) = delete;
  OfferedState& operator=(const OfferedState&) = delete;

  stage::Stage* stage() { return stage_.get(); }  // null once taken
  schedule::LayerRange layers() const { return layers_; }
  std::unique_ptr<stage::Stage> take_stage() { return std::move(stage_); }

 private:
  transport::StateExchange& exchange_;
  std::unique_ptr<stage::Stage> stage_;
  const schedule::LayerRange layers_;
};

}  // namespace weir::engine
