// SPDX-License-Identifier: Apache-2.0
// Checkpoints as the coordinator knows them, and the callbacks for work that blocks on a disk.
// worker/app connects them with the room worker/checkpoint.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/protocol/messages.h"

namespace weir::coordinator {

struct Checkpoint {
  std::int64_t step = 0;              // completed steps
  std::int64_t samples = 0;           // samples of all completed steps
  std::int64_t compressed_steps = 0;  // those with codecs
};

// Writes the manifest of a step of which all layers are on disk.
struct CheckpointOrder {
  Checkpoint checkpoint;
  std::uint32_t revision = 0;
  int incarnation = 0;
  std::string plan_json;
  std::vector<protocol::SavedFile> files;  // by layer
  std::vector<std::int64_t> keep;          // steps whose checkpoints stay, including this one
};

// Steps to delete from the folder: complete checkpoints, and files of failed saves.
struct CheckpointRemoval {
  std::vector<std::int64_t> complete, unfinished;
  bool operator==(const CheckpointRemoval&) const = default;
};

// Result of a save or a commit.
struct SaveResult {
  std::string error;  // empty: success
  protocol::SaveTrouble trouble = protocol::SaveTrouble::kNone;
};

struct CheckpointPolicy {
  bool on = false;
  std::vector<Checkpoint> found;       // complete ones at the start, oldest first
  std::int64_t interval_steps = 0;     // 0 = by `period`
  std::chrono::nanoseconds period{0};  // used if interval_steps is 0
  int keep = 2;
  // Time for all ranks to write their files, and for a commit. Afterwards the save fails or a
  // warning says that the disk hangs. 0 = unlimited.
  std::chrono::nanoseconds deadline{0};
  // Both run in the background, one after the other, and call `done` from any thread. commit makes
  // the checkpoint valid.
  std::function<void(CheckpointOrder, std::function<void(SaveResult)> done)> commit;
  std::function<void(CheckpointRemoval, std::function<void()> done)> remove;
  // Training cannot continue: no checkpoint can be loaded, or none can be written.
  std::function<void(std::string reason)> unusable;
};

// Whether a neighbor keeps each snapshot, too. Auto: while its memory and the network suffice.
enum class NeighborCopies : unsigned char { kAuto, kOn, kOff };

// Copies that ranks keep of their state (snapshot_rounds.h).
struct SnapshotPolicy {
  std::int64_t every_steps = 0;          // 0: none are taken
  std::chrono::nanoseconds deadline{0};  // of a round; 0 = unlimited
  NeighborCopies copies = NeighborCopies::kAuto;
  bool for_leaving = false;  // no checkpoint is written for ranks that leave: they wait for copies
};

}  // namespace weir::coordinator
