// SPDX-License-Identifier: Apache-2.0
// A model whose layers others compute, through a table of C functions (weir_layers.h).
#pragma once

#include <memory>

#include "worker/base/result.h"
#include "worker/stage/foreign/weir_layers.h"
#include "worker/stage/layer.h"

namespace weir::stage {

// Asks the layers to describe themselves for these options. Called once in a process, by the engine
// thread, which alone calls the layers. The table must outlive the process's last stage. kInvalid
// names the model and the field, or holds the layers' own message.
Result<std::shared_ptr<const LayerSource>> describe_foreign(const weir_layers& table,
                                                            const ModelOptions& options,
                                                            const device::Device& device);

}  // namespace weir::stage
