// SPDX-License-Identifier: Apache-2.0
// Finding and loading checkpoints. Nothing is believed: a file counts when its size and SHA-256 are
// those of the manifest and its tensors have names, type and shapes of the stage's parameters.
#pragma once

#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/checkpoint/manifest.h"
#include "worker/stage/stage.h"

namespace weir::checkpoint {

struct Scan {
  std::vector<Manifest> whole;  // oldest first: manifest readable, all files there, right sizes
  std::vector<std::string> damaged;  // "step-0000000020: manifest.json: ..."
};

// What is in `root`, without reading tensors. Unfinished saves are no checkpoints. kNotFound,
// kUnavailable: the folder cannot be read.
Result<Scan> scan(const std::string& root);

// Values and optimizer state of the stage's layers from `root`/step-N. Errors leave the stage with
// unspecified values: kInvalid: that checkpoint is damaged; kConflict: it is of another model;
// kUnavailable, kNotFound: it cannot be read here. shapes: of the model, so that a checkpoint of
// another one is kConflict before anything is read.
Status load_stage(const std::string& root, std::int64_t step, stage::Stage& stage,
                  const std::string& shapes = "");

// Values only, from any checkpoint folder ("<root>/step-N", or <root>: its newest whole one) whose
// layers have the same parameters; the moments are left alone.
Status load_values(const std::string& folder, stage::Stage& stage);

}  // namespace weir::checkpoint
