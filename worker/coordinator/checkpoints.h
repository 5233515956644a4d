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

// Of the folder, by step: complete checkpoints, and what failed saves have left.
struct CheckpointRemoval {
  std::vector<std::int64_t> complete, unfinished;
  bool operator==(const CheckpointRemoval&) const = default;
};

// How a save or a commit has ended.
struct SaveResult {
  std::string error;  // empty: well
  protocol::SaveTrouble trouble = protocol::SaveTrouble::kNone;
};

struct CheckpointPolicy {
  bool on = false;
  std::vector<Checkpoint> found;       // whole ones at the start, oldest first
  std::int64_t interval_steps = 0;     // 0: by time
  std::chrono::nanoseconds period{0};  // then
  int keep = 2;
  // For all ranks to write their files, and for a commit; then it is told that the disk stands
  // still. 0 = for ever.
  std::chrono::nanoseconds deadline{0};
  // Both in the background, one after the other; done: from any thread. The first one makes the
  // checkpoint count.
  std::function<void(CheckpointOrder, std::function<void(SaveResult)> done)> commit;
  std::function<void(CheckpointRemoval, std::function<void()> done)> remove;
  // Training cannot go on: no checkpoint can be loaded, or none is ever written.
  std::function<void(std::string reason)> unusable;
};

}  // namespace weir::coordinator
