// SPDX-License-Identifier: Apache-2.0
// Finds and loads checkpoints. A file counts only if its size and SHA-256 equal those in the
// manifest, and if its tensors have the names, type and shapes of the stage's parameters.
#pragma once

#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/checkpoint/manifest.h"
#include "worker/stage/stage.h"

namespace weir::checkpoint {

struct Scan {
  // Oldest first: the manifest is readable and all files have the right sizes.
  std::vector<Manifest> whole;
  std::vector<std::string> damaged;  // "step-0000000020: manifest.json: ..."
};

// Lists the checkpoints in `root` without reading tensors. Unfinished saves are no checkpoints.
// kNotFound, kUnavailable: the folder cannot be read.
Result<Scan> scan(const std::string& root);

// The checkpoint in `folder` ("<root>/step-N"), or the newest whole one in it (<root>).
struct Found {
  std::string path;  // of its files
  Manifest manifest;
};
// kNotFound: there is none. kInvalid: it is damaged.
Result<Found> find(const std::string& folder);

// Loads values and optimizer state of the stage's layers from `root`/step-N. An error leaves the
// stage with unspecified values. kInvalid: the checkpoint is damaged. kConflict: it is of another
// model. kUnavailable, kNotFound: it cannot be read on this machine. shapes: of the model; a
// checkpoint with other shapes gives kConflict before anything is read.
Status load_stage(const std::string& root, std::int64_t step, stage::Stage& stage,
                  const std::string& shapes = "");

// Loads values only, from any checkpoint folder ("<root>/step-N", or <root> for its newest complete
// one) whose layers have the same parameters. The moments are not changed.
Status load_values(const std::string& folder, stage::Stage& stage);

}  // namespace weir::checkpoint
