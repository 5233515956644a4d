// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of the softmax of logits (R,V) against one target per row.
#pragma once

#include <cstdint>

namespace weir::stage::ops {

// Returns the sum over the rows of -log softmax(logits)[target], in row order. Replaces the logits
// by their gradient: (softmax - 1 at the target) x scale.
double softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                    float* logits);

}  // namespace weir::stage::ops
