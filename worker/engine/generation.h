// SPDX-License-Identifier: Apache-2.0
// The parts that one generation of a rank owns: its place and links. Its stage is the engine's
// (holding.h). Only sources of the engine include this file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/engine/stage_links.h"
#include "worker/engine/state_average.h"

namespace weir::engine {

inline constexpr const char* kRoom = "engine";  // in the log

struct Engine::Generation {
  Prepared current;     // the plan in force
  bool placed = false;  // false: this rank is idle, and the following fields are empty
  schedule::RankPlace place;
  stage::Stage* stage = nullptr;
  schedule::LayerRange layers;
  std::unique_ptr<StageLinks> links;
  std::string headers_from;  // "stage 0 at 10.0.0.7:7071, link 0-1 forward"; "" on the first stage
  AverageBeside beside;
  // The collective of this stage; null with one replica. It works on memory of the stage and of the
  // fields above, so it is destroyed before them.
  std::unique_ptr<transport::Collective> replicas;
  // The same for the first and last stage of this replica if they share tables; null elsewhere.
  std::unique_ptr<transport::Collective> ties;
  std::int64_t history = 0;         // that begins with its GO
  std::int64_t start = 0;           // completed steps of the state with which it begins
  std::vector<schedule::Ids> kept;  // by replica: summed before its first step; empty: nothing
  std::uint64_t turn = 0;           // of the COMMIT
  bool running = false;             // GO has come
  bool broken = false;              // its links are lost, or a step was dropped

  bool trains() const { return running && !broken && placed; }
};

}  // namespace weir::engine
