// SPDX-License-Identifier: Apache-2.0
// Plain loops that the compiler vectorises.
#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/relu.h"

namespace weir::stage::ops {
namespace {

void relu_forward(std::size_t count, const float* x, float* y) {
  for (std::size_t i = 0; i < count; ++i) y[i] = x[i] > 0.0F ? x[i] : 0.0F;
}

void relu_backward(std::size_t count, const float* x, const float* dy, float* dx) {
  for (std::size_t i = 0; i < count; ++i) dx[i] = x[i] > 0.0F ? dy[i] : 0.0F;
}

}  // namespace

void run_on_host(const ReluForward& op, Precision precision) {
  relu_forward(op.count, In(op.x, op.count, precision), Out(op.y, op.count, precision));
}

void run_on_host(const ReluBackward& op, Precision precision) {
  relu_backward(op.count, In(op.x, op.count, precision), In(op.dy, op.count, precision),
                Out(op.dx, op.count, precision));
}

}  // namespace weir::stage::ops
