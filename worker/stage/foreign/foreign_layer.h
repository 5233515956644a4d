// SPDX-License-Identifier: Apache-2.0
// One foreign layer as a Layer. What it keeps for a backward lies in its own memory, under a ticket
// that ends with exactly one drop, however the pass ends.
#pragma once

#include <memory>

#include "worker/stage/foreign/description.h"
#include "worker/stage/foreign/weir_layers.h"
#include "worker/stage/layer.h"

namespace weir::stage {

// index: of the layer in its model.
std::unique_ptr<Layer> make_foreign_layer(const weir_layers& table, int index,
                                          const LayerDescription& description);

}  // namespace weir::stage
