// SPDX-License-Identifier: Apache-2.0
// A multilayer perceptron that predicts the next token from the last 8 (Bengio et al., "A Neural
// Probabilistic Language Model", 2003): embeddings side by side, equal hidden layers with ReLU, and
// a projection with loss. Layers: embed, hidden0 .. hidden5, head. It is the smallest model that
// can be cut into eight stages.
#pragma once

#include "worker/stage/layer.h"
#include "worker/stage/stage.h"

namespace weir::stage {

Layers build_mlp(const ModelOptions& options);

}  // namespace weir::stage
