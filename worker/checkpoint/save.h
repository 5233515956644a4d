// SPDX-License-Identifier: Apache-2.0
// Saving, in the order of a save: each rank copies its layers (engine thread, between two steps),
// writes them (checkpoint thread), then one process commits: manifest, final name, removal of old
// ones. A process killed anywhere in between leaves the checkpoint before as it was.
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
// parameters: value and two moments.
inline constexpr int kCopyFactor = stage::kSaveCopyFactor;

// value, adam_m and adam_v of the layers that `mine` wants, after the ops so far: kCopyFactor times
// the parameters, of the device's memory if that is the host's. kInternal: no memory for the copy,
// or the device failed.
Result<std::vector<LayerImage>> copy_layers(stage::Stage& stage,
                                            const std::function<bool(int layer)>& mine);

// Into `root`/step-N.tmp, durably. Several ranks do that at once, each with its own layers.
// kInvalid: values that are no finite numbers; kNoRoom (disk.h).
Result<std::vector<FileEntry>> write_layers(Disk& disk, const std::string& root, std::int64_t step,
                                            std::span<const LayerImage> images);

// All layers of manifest.step are written: from here on it counts. Checks the files' sizes first.
// kInvalid: a file is missing or short.
Status commit(Disk& disk, const std::string& root, const Manifest& manifest);

// Removes every checkpoint folder but those of the steps in `keep`, and what unfinished saves have
// left but that of `writing` (-1: none is under way).
Status remove_others(Disk& disk, const std::string& root, std::span<const std::int64_t> keep,
                     std::int64_t writing);
// The complete checkpoints and the unfinished saves of those steps.
Status remove_steps(Disk& disk, const std::string& root, std::span<const std::int64_t> complete,
                    std::span<const std::int64_t> unfinished);
// After earlier processes were killed: removes unfinished saves, gives a checkpoint its name back
// that was to be replaced.
Status repair(Disk& disk, const std::string& root);

}  // namespace weir::checkpoint
