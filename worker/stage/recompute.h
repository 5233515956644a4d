// SPDX-License-Identifier: Apache-2.0
// Layers that keep only their input and run their forward again before their backward. This trades
// time for memory and changes no bit (worker/stage/README.md "Recompute").
#pragma once

#include <string>

#include "worker/base/result.h"
#include "worker/stage/layer.h"

namespace weir::stage {

// Replaces the chosen layers of a model with sequences of so many tokens. choice: "none", "all", or
// a list of ids and ranges as "block0-block3,head". A first layer has no input, so it stays as it
// is. kInvalid names an id that the model does not have.
Status recompute(Layers& layers, const std::string& choice, int sequence);

}  // namespace weir::stage
