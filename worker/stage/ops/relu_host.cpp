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

void run_on_host(const ReluForward& op, const Host& host) {
  const In x(op.x, op.count, host);
  Out y(op.y, op.count, host);
  for_elements(host.team, op.count, [&](Team::Index begin, Team::Index end) {
    relu_forward(static_cast<std::size_t>(end - begin), x + begin, y + begin);
  });
}

void run_on_host(const ReluBackward& op, const Host& host) {
  const In x(op.x, op.count, host), dy(op.dy, op.count, host);
  Out dx(op.dx, op.count, host);
  for_elements(host.team, op.count, [&](Team::Index begin, Team::Index end) {
    relu_backward(static_cast<std::size_t>(end - begin), x + begin, dy + begin, dx + begin);
  });
}

}  // namespace weir::stage::ops
