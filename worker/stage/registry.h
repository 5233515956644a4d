// SPDX-License-Identifier: Apache-2.0
// The built-in models by name. To add one, put its layers into models/ and its name into
// registry.cpp.
#pragma once

#include "worker/base/result.h"
#include "worker/stage/layer.h"
#include "worker/stage/stage.h"

namespace weir::stage {

// Returns all layers of the model, without parameters. kInvalid names the option.
Result<Layers> layers_of(const Model& model);

}  // namespace weir::stage
