// SPDX-License-Identifier: Apache-2.0
// What the coordinator must know of checkpoints, and who does for it what blocks on a disk: the
// room worker/checkpoint is joined with it by worker/app.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/protocol/messages.h"

namespace weir::coordinator {

struct Checkpoint {
  std::int64_t step = 0;     // completed steps
  std::int64_t samples = 0;  // that were trained with until then
};

// All layers of a step are written.
struct CheckpointOrder {
  Checkpoint checkpoint;
  std::uint32_t revision = 0;
  int incarnation = 0;
  std::string plan_json;
  std::vector<protocol::SavedFile> files;  // by layer
  std::vector<std::int64_t> keep;          // steps whose checkpoints stay, this one too
};

struct CheckpointPolicy {
  bool on = false;
  std::vector<Checkpoint> found;       // whole ones at the start, oldest first
  std::int64_t interval_steps = 0;     // 0: by time
  std::chrono::nanoseconds period{0};  // then
  int keep = 2;
  // Makes the checkpoint count, in the background; done: from any thread, empty = it does.
  std::function<void(CheckpointOrder, std::function<void(std::string error)> done)> commit;
  // Training cannot go on: no checkpoint can be loaded, or none is ever written.
  std::function<void(std::string reason)> unusable;
};

}  // namespace weir::coordinator
