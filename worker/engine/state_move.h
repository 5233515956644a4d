// SPDX-License-Identifier: Apache-2.0
// Moving state to another cut or rank map: what a rank keeps, what it fetches and from whom, and
// the layers that it holds for others until the new generation runs. State is the parameters and
// both moments of the optimizer; nothing else passes from step to step.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/device/host_view.h"
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

// The state of some layers of a stage in memory of the host: for each parameter its value and its
// two moments. On the host it is the stage's own memory, on another device a copy of 12 bytes a
// parameter.
class HostState {
 public:
  // As the ops so far leave it. kInternal: no memory for the copy, or the device failed.
  static Result<HostState> of(stage::Stage& stage, schedule::LayerRange layers);
  // To be filled by the caller, all of it, and then written back.
  static Result<HostState> to_fill(stage::Stage& stage, schedule::LayerRange layers);

  std::vector<transport::LayerMemory> memory() const;
  Status write_back();

 private:
  struct Part {
    int layer = 0;
    device::HostView<float> view;
  };
  using Open = Result<device::HostView<float>> (*)(device::Device&, std::span<float>);
  static Result<HostState> open(stage::Stage& stage, schedule::LayerRange layers, Open open);

  schedule::LayerRange layers_;
  std::vector<Part> parts_;
};
// Between two stages on one device that both hold these layers; ops. kInvalid: their parameters
// differ; kInternal: the device failed.
Status copy_layers(stage::Stage& from, stage::Stage& to, schedule::LayerRange layers);

// Offers a stage's layers as long as it lives. The stage may be taken back; its memory is then
// somebody else's care, and must stay as it is until this object is gone.
class OfferedState {
 public:
  // state: of that stage.
  OfferedState(transport::StateExchange& exchange, const transport::StateKey& key,
               std::unique_ptr<stage::Stage> stage, schedule::LayerRange layers, HostState state);
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
  const HostState state_;
};

}  // namespace weir::engine
