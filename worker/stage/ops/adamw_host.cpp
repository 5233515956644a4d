// SPDX-License-Identifier: Apache-2.0
// One plain loop that the compiler vectorises. Elements are independent, so no order matters.
#include <cmath>

#include "worker/stage/ops/adamw.h"
#include "worker/stage/ops/host_operands.h"

namespace weir::stage::ops {
namespace {

template <class Number>
void adamw(const AdamWStep& step, std::size_t count, const Number* __restrict gradient,
           float* __restrict value, float* __restrict m, float* __restrict v) {
  const AdamWStep s = step;
  const float rest1 = 1.0F - s.beta1;
  const float rest2 = 1.0F - s.beta2;
  for (std::size_t i = 0; i < count; ++i) {
    const float g = s.gradient_scale * static_cast<float>(gradient[i]);
    m[i] = s.beta1 * m[i] + rest1 * g;
    v[i] = s.beta2 * v[i] + rest2 * (g * g);
    const float direction = m[i] / s.correction1 / (std::sqrt(v[i] / s.correction2) + s.epsilon);
    value[i] -= s.rate * (direction + s.weight_decay * value[i]);
  }
}

}  // namespace

void run_on_host(const AdamW& op, const Host& host) {
  for_elements(host.team, op.count, [&](Team::Index begin, Team::Index end) {
    with_numbers(op.gradient, [&](const auto* gradient) {
      adamw(op.step, static_cast<std::size_t>(end - begin), gradient + begin, op.value + begin,
            op.m + begin, op.v + begin);
    });
  });
}

}  // namespace weir::stage::ops
