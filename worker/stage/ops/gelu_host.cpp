// SPDX-License-Identifier: Apache-2.0
// Four elements at a time, and the rest in a padded vector, so that the arithmetic of an element
// does not depend on its position.
#include "worker/stage/ops/gelu.h"
#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/vector.h"

namespace weir::stage::ops {
namespace {

constexpr float kScale = 0.7978845608F;  // sqrt(2/pi)
constexpr float kCube = 0.044715F;

Vec tanh_part(Vec x) {
  return tanh_of(broadcast(kScale) * (x + broadcast(kCube) * x * x * x));
}

Vec value(Vec x) {
  return broadcast(0.5F) * x * (broadcast(1.0F) + tanh_part(x));
}

Vec slope(Vec x) {
  const Vec one = broadcast(1.0F);
  const Vec t = tanh_part(x);
  const Vec inner = broadcast(kScale) * (one + broadcast(3.0F * kCube) * x * x);
  return broadcast(0.5F) * (one + t) + broadcast(0.5F) * x * (one - t * t) * inner;
}

void gelu_forward(std::size_t count, const float* x, float* y) {
  const auto n = static_cast<Index>(count);
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, value(load(x + i)));
  store_some(y + i, value(load_some(x + i, n - i, 0.0F)), n - i);
}

void gelu_backward(std::size_t count, const float* x, const float* dy, float* dx) {
  const auto n = static_cast<Index>(count);
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) store(dx + i, load(dy + i) * slope(load(x + i)));
  const Vec last = load_some(dy + i, n - i, 0.0F) * slope(load_some(x + i, n - i, 0.0F));
  store_some(dx + i, last, n - i);
}

}  // namespace

void run_on_host(const GeluForward& op, const Host& host) {
  const In x(op.x, op.count, host);
  Out y(op.y, op.count, host);
  for_elements(host.team, op.count, [&](Index begin, Index end) {
    gelu_forward(static_cast<std::size_t>(end - begin), x + begin, y + begin);
  });
}

void run_on_host(const GeluBackward& op, const Host& host) {
  const In x(op.x, op.count, host), dy(op.dy, op.count, host);
  Out dx(op.dx, op.count, host);
  for_elements(host.team, op.count, [&](Index begin, Index end) {
    gelu_backward(static_cast<std::size_t>(end - begin), x + begin, dy + begin, dx + begin);
  });
}

}  // namespace weir::stage::ops
