// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/adamw.h"
#include "worker/stage/ops/cuda/elementwise.h"
#include "worker/stage/ops/cuda/queue.h"

namespace weir::stage::ops {
namespace {

struct AdamWUpdate {
  AdamWStep s;
  const float* gradient;
  float *value, *m, *v;
  __device__ void operator()(std::size_t i) const {
    const float g = s.gradient_scale * gradient[i];
    m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * (g * g);
    const float direction = m[i] / s.correction1 / (sqrtf(v[i] / s.correction2) + s.epsilon);
    value[i] -= s.rate * (direction + s.weight_decay * value[i]);
  }
};

}  // namespace

void run_on_cuda(const AdamW& op, CudaQueue& queue) {
  launch_for_each(queue.stream, op.count, AdamWUpdate{op.step, op.gradient, op.value, op.m, op.v});
}

}  // namespace weir::stage::ops
