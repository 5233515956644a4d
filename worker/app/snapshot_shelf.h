// SPDX-License-Identifier: Apache-2.0
// A folder of snapshots of one kind: those of this rank, or copies of another rank's. Each is
// written as a checkpoint of its layers. Any thread, except where a function names one.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/base/settings.h"
#include "worker/checkpoint/disk.h"
#include "worker/checkpoint/manifest.h"
#include "worker/schedule/plan.h"
#include "worker/stage/stage.h"

namespace weir::app {

class SnapshotShelf {
 public:
  struct Kept {
    std::int64_t step = 0;
    schedule::LayerRange layers;
    std::int64_t bytes = 0;  // of its files; keep() counts them
    std::int64_t compressed_steps = 0;
  };

  // owner: the job and the pod; settings: of this run. The model outlives this object.
  SnapshotShelf(std::string folder, std::string owner, const stage::Model& model,
                Settings settings);

  // Makes the folder. Before the other functions; false if that fails.
  bool open();
  // Finds the snapshots that a predecessor left. Those of others, and damaged ones, are removed
  // with a warning, and all if there is a reason against them.
  void find(const std::string& refusal);

  const std::string& folder() const { return folder_; }
  std::vector<Kept> kept() const;  // oldest first

  // One at a time is written.
  bool busy() const;
  void begin(std::int64_t step);
  void give_up();  // what begin() began
  // The files are written; `then` is called if the snapshot is kept, before it can be forgotten.
  // kCancelled: it has been forgotten meanwhile. After an error the files are removed.
  Status keep(Kept snapshot, std::vector<checkpoint::FileEntry> files,
              const std::function<void()>& then);
  void remove_unfinished(std::int64_t step);
  // Forgets these snapshots, and one that is being written; the files are to be removed.
  std::vector<std::int64_t> forget(const std::function<bool(std::int64_t step)>& which);
  void remove(std::span<const std::int64_t> steps);

  checkpoint::Disk& disk() { return disk_; }

 private:
  std::string refusal_of(const checkpoint::Manifest& manifest) const;

  const std::string folder_, owner_;
  const stage::Model& model_;
  const Settings settings_;
  mutable std::mutex mutex_;  // guards the two below
  std::vector<Kept> kept_;    // oldest first
  std::optional<std::int64_t> writing_;
  checkpoint::Disk disk_;
};

}  // namespace weir::app
