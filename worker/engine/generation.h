// SPDX-License-Identifier: Apache-2.0
// What one generation of a rank owns: its place, its stage, its links. Only the engine's own
// sources include this.
#pragma once

#include <memory>

#include "worker/engine/engine.h"
#include "worker/engine/ports.h"
#include "worker/engine/state_average.h"

namespace weir::engine {

inline constexpr const char* kRoom = "engine";  // in the log

struct Engine::Generation {
  Prepared current;     // the plan in force
  bool placed = false;  // else idle: what follows is empty
  schedule::RankPlace place;
  std::unique_ptr<stage::Stage> stage;
  schedule::LayerRange layers;
  std::unique_ptr<Ports> ports;
  AverageBeside beside;
  // Those of this stage; null with one replica. After those whose memory it works on.
  std::unique_ptr<transport::Collective> replicas;
  bool running = false;  // GO has come
  bool broken = false;   // its links are gone, or a step was dropped

  bool trains() const { return running && !broken && placed; }
};

}  // namespace weir::engine
