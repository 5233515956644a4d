// SPDX-License-Identifier: Apache-2.0
// What one generation of a rank owns: its place, its stage, its links. Only the engine's own
// sources include this.
#pragma once

#include <memory>
#include <optional>

#include "worker/engine/engine.h"
#include "worker/engine/ports.h"

namespace weir::engine {

struct Engine::Generation {
  Prepared current;                          // the plan in force
  std::optional<schedule::RankPlace> place;  // nothing: idle
  std::unique_ptr<stage::Stage> stage;
  schedule::LayerRange layers;
  std::unique_ptr<Ports> ports;
  bool running = false;  // GO has come
  bool broken = false;   // its links are gone, or a step was dropped

  bool trains() const { return running && !broken && place.has_value(); }
  int micro_batches() const {
    return current.plan.micro_batches[static_cast<std::size_t>(place->replica)];
  }
};

}  // namespace weir::engine
