// SPDX-License-Identifier: Apache-2.0
// make_stage() with the caller's kernels, for a device that this build does not know.
#pragma once

#include <memory>

#include "worker/stage/ops/kernels.h"
#include "worker/stage/stage.h"

namespace weir::stage {

// kernels: for memory of `device` and the model's precision.
Result<std::unique_ptr<Stage>> make_builtin_stage(const Model& model, int first_layer,
                                                  int last_layer, device::Device& device,
                                                  std::unique_ptr<ops::Kernels> kernels,
                                                  GraphUse graphs = GraphUse::kOff,
                                                  Initial initial = Initial::kOfModel);

}  // namespace weir::stage
