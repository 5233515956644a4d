// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of the softmax of logits (R,V) against one target per row.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

// loss = the sum over the rows of -log softmax(logits)[target], in row order, in staging memory.
// Replaces the logits by their gradient: (softmax - 1 at the target) x scale.
struct SoftmaxLoss {
  int rows, vocabulary;
  const std::int32_t* targets;
  float scale;
  Element* logits;
  double* loss;
  auto fields() const { return std::tie(rows, vocabulary, targets, scale, logits, loss); }
};
void run_on_host(const SoftmaxLoss& op, const Host& host);
void run_on_cuda(const SoftmaxLoss& op, CudaQueue& queue);

}  // namespace weir::stage::ops
