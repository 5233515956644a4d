// SPDX-License-Identifier: Apache-2.0
// --describe: the layers of a model, what they keep and need, as weir-torch prints them. Pure.
#pragma once

#include <string>

#include "worker/base/result.h"
#include "worker/stage/stage.h"

namespace weir::app {

// A line for the model, one with the names of the columns, and one for each layer.
Result<std::string> description_of(const stage::Model& model);

}  // namespace weir::app
