// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/adamw.h"
#include "worker/stage/ops/cuda/elementwise.h"
#include "worker/stage/ops/cuda/queue.h"

namespace weir::stage::ops {
namespace {

template <class Number>
struct AdamWUpdate {
  AdamWStep s;
  const Number* gradient;
  float *value, *m, *v;
  __device__ void operator()(std::size_t i) const {
    // All loads come before the first store: the compiler cannot know that the arrays are apart,
    // and would let each load wait for the store before it.
    const float g = s.gradient_scale * static_cast<float>(gradient[i]), old = value[i];
    const float mean = s.beta1 * m[i] + (1 - s.beta1) * g;
    const float square = s.beta2 * v[i] + (1 - s.beta2) * (g * g);
    const float direction = mean / s.correction1 / (sqrtf(square / s.correction2) + s.epsilon);
    m[i] = mean;
    v[i] = square;
    value[i] = old - s.rate * (direction + s.weight_decay * old);
  }
};

}  // namespace

void run_on_cuda(const AdamW& op, CudaQueue& queue) {
  with_numbers(op.gradient, [&](const auto* gradient) {
    using Number = std::remove_const_t<std::remove_pointer_t<decltype(gradient)>>;
    launch_for_each(queue.stream, op.count,
                    AdamWUpdate<Number>{op.step, gradient, op.value, op.m, op.v});
  });
}

}  // namespace weir::stage::ops
