// SPDX-License-Identifier: Apache-2.0
// Moving state to another cut or rank map: the layers that a rank keeps, the layers that it fetches
// and from which ranks, and the layers that it offers to others until the new generation runs.
// State is the parameters and both moments of the optimizer; nothing else passes from step to step.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/device/host_view.h"
#include "worker/engine/plan_rules.h"
#include "worker/engine/snapshots.h"
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
  std::vector<schedule::LayerRange> kept;  // layers that this rank holds already
  std::vector<MovePart> fetched;
};

// This rank's entry in plan.holders for what it trains with; null if it holds nothing.
const schedule::LayerHolder* holder_of(const schedule::Plan& plan, const Identity& identity);
// The layers of which this rank holds copies for others.
std::vector<schedule::LayerRange> copies_at(const schedule::Plan& plan, const Identity& identity);
// Where the layers of this rank's place come from. Replicas fetch from different holders. Empty
// without a place. kInvalid: no rank holds some layer. Pure.
Result<MoveParts> parts_of_move(const schedule::Plan& plan, const Identity& identity);

// The state of some layers of a stage in host memory: for each parameter its value and its two
// moments. On the host device this is the stage's own memory. On other devices it is a copy of 12
// bytes per parameter.
class HostState {
 public:
  // The state after all ops so far. kInternal: no memory for the copy, or the device failed.
  static Result<HostState> of(stage::Stage& stage, schedule::LayerRange layers);
  // Memory that the caller must fill completely and then write back.
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
// Copies layers between two stages on one device that both hold them, by ops. kInvalid: their
// parameters differ. kInternal: the device failed.
Status copy_layers(stage::Stage& from, stage::Stage& to, schedule::LayerRange layers);

// Offers layers to other ranks during its lifetime, in which their memory must not change.
class OfferedState {
 public:
  OfferedState(transport::StateExchange& exchange, const transport::StateKey& key,
               std::optional<HostState> state, std::vector<StoredLayers> copies);
  ~OfferedState() { exchange_.withdraw(); }
  OfferedState(const OfferedState&) = delete;
  OfferedState& operator=(const OfferedState&) = delete;

 private:
  transport::StateExchange& exchange_;
  const std::optional<HostState> state_;
  const std::vector<StoredLayers> copies_;
};

}  // namespace weir::engine
