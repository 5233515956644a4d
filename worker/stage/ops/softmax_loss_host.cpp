// SPDX-License-Identifier: Apache-2.0
// Each row: largest logit, exponentials and their sum, gradient.
#include <cmath>
#include <vector>

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

// Returns the loss of the row.
double softmax_loss_row(float* row, Index count, Index target, float scale) {
  const float top = largest(row, count);
  const double target_logit = double{row[target]} - double{top};
  const float sum = exponentials(row, count, top);
  const float factor = scale / sum;
  for (Index v = 0; v < count; ++v) row[v] *= factor;
  row[target] -= scale;
  return std::log(double{sum}) - target_logit;
}

// The losses of the rows are added in their order.
double softmax_loss(Team& team, const SoftmaxLoss& op, float* logits) {
  const Index count = op.vocabulary;
  std::vector<double> losses(static_cast<std::size_t>(op.rows));
  team.run(op.rows, least_rows(count), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      losses[static_cast<std::size_t>(r)] =
          softmax_loss_row(logits + r * count, count, op.targets[r], op.scale);
    }
  });
  double loss = 0;
  for (const double one : losses) loss += one;
  return loss;
}

}  // namespace

void run_on_host(const SoftmaxLoss& op, const Host& host) {
  *op.loss = softmax_loss(host.team, op, InOut(op.logits, product(op.rows, op.vocabulary), host));
}

}  // namespace weir::stage::ops
