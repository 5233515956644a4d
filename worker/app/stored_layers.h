// SPDX-License-Identifier: Apache-2.0
// Layers of a snapshot as memory that other ranks fetch, without a copy of it: the system maps the
// files.
#pragma once

#include <cstdint>
#include <string>

#include "worker/base/result.h"
#include "worker/engine/snapshots.h"
#include "worker/schedule/plan.h"

namespace weir::app {

enum class Layout : unsigned char {
  kFiles,    // a layer is one part: its whole file
  kTensors,  // as a stage holds them; the files are compared with their digests first
};

// Layers of `root`/step-N. kInvalid: it is damaged. Other codes: it cannot be read.
Result<engine::StoredLayers> stored_layers(const std::string& root, std::int64_t step,
                                           schedule::LayerRange layers, Layout layout);

}  // namespace weir::app
