// SPDX-License-Identifier: Apache-2.0
// Each row: largest logit, exponentials and their sum, gradient.
#include <cmath>

#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/softmax_loss.h"
#include "worker/stage/ops/vector.h"

namespace weir::stage::ops {
namespace {

float largest(const float* row, Index count) {
  Vec most = broadcast(-INFINITY);
  Index v = 0;
  for (; v + kLanes <= count; v += kLanes) most = larger(most, load(row + v));
  return largest_lane(larger(most, load_some(row + v, count - v, -INFINITY)));
}

// row = e^(row - top). Returns the sum.
float exponentials(float* row, Index count, float top) {
  Vec total = broadcast(0.0F);
  Index v = 0;
  for (; v + kLanes <= count; v += kLanes) {
    const Vec e = exp_of(load(row + v) - broadcast(top));
    total += e;
    store(row + v, e);
  }
  const Vec last = exp_of(load_some(row + v, count - v, -INFINITY) - broadcast(top));
  store_some(row + v, last, count - v);
  return sum_of_lanes(total + last);
}

double softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                    float* logits) {
  double loss = 0;
  const Index count = vocabulary;
  for (Index r = 0; r < rows; ++r, logits += count) {
    const Index target = targets[r];
    const float top = largest(logits, count);
    const double target_logit = double{logits[target]} - double{top};
    const float sum = exponentials(logits, count, top);
    loss += std::log(double{sum}) - target_logit;
    const float factor = scale / sum;
    for (Index v = 0; v < count; ++v) logits[v] *= factor;
    logits[target] -= scale;
  }
  return loss;
}

}  // namespace

void run_on_host(const SoftmaxLoss& op, Precision precision) {
  *op.loss = softmax_loss(op.rows, op.vocabulary, op.targets, op.scale,
                          InOut(op.logits, product(op.rows, op.vocabulary), precision));
}

}  // namespace weir::stage::ops
