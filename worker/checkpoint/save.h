// SPDX-License-Identifier: Apache-2.0
// Saving, in the order of a save: each rank copies its layers (engine thread, between two steps)
// and writes them (checkpoint thread); then one process commits: manifest, final name, removal of
// old checkpoints. If a process is killed at any point, the previous checkpoint is unchanged.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/checkpoint/disk.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/stage/stage.h"

namespace weir::checkpoint {

struct LayerImage {
  int layer = 0;
  FileImage file;
};

// Bytes of a checkpoint, and of the copy that a save holds until it is written, per byte of the
// parameters: the value and two moments.
inline constexpr int kCopyFactor = stage::kSaveCopyFactor;

// Copies value, adam_m and adam_v of the layers that `mine` selects, after all ops so far. The copy
// has kCopyFactor times the size of the parameters and is in the device's memory if that is host
// memory. kInternal: no memory for the copy, or the device failed.
Result<std::vector<LayerImage>> copy_layers(stage::Stage& stage,
                                            const std::function<bool(int layer)>& mine);

// Writes durably into `root`/step-N.tmp. Several ranks do so at once, each with its own layers.
// kInvalid: some values are not finite. kNoRoom: see disk.h.
Result<std::vector<FileEntry>> write_layers(Disk& disk, const std::string& root, std::int64_t step,
                                            std::span<const LayerImage> images);

// Makes the checkpoint valid once all layers of manifest.step are written. Checks the sizes of the
// files first. kInvalid: a file is missing or too short.
Status commit(Disk& disk, const std::string& root, const Manifest& manifest);

// Removes all checkpoint folders except those of the steps in `keep`, and leftovers of unfinished
// saves except that of `writing` (-1: none is running).
Status remove_others(Disk& disk, const std::string& root, std::span<const std::int64_t> keep,
                     std::int64_t writing);
// Removes the complete checkpoints and the unfinished saves of these steps.
Status remove_steps(Disk& disk, const std::string& root, std::span<const std::int64_t> complete,
                    std::span<const std::int64_t> unfinished);
// Repairs the folder after processes were killed: removes unfinished saves, and restores the name
// of a checkpoint that was about to be replaced.
Status repair(Disk& disk, const std::string& root);

}  // namespace weir::checkpoint
