// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter, 2019): weight decay is separate from the gradient.
#pragma once

#include "worker/stage/ops/element.h"
#include "worker/stage/ops/exact_sum.h"

namespace weir::stage::ops {

struct AdamWStep {
  float rate, beta1, beta2, epsilon, weight_decay;
  float correction1, correction2;  // 1 - beta^t, t = 1, 2, ...
  float gradient_scale = 1;        // below 1 if the norm of all gradients is clipped
};

// With g = gradient_scale * gradient:
// m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2;
// value -= rate (m/correction1 / (sqrt(v/correction2) + epsilon) + weight_decay value)
struct AdamW {
  AdamWStep step;
  std::size_t count;
  StepGradient gradient;
  float *value, *m, *v;
  auto fields() const { return std::tie(step, count, gradient, value, m, v); }
};
void run_on_host(const AdamW& op, const Host& host);
void run_on_cuda(const AdamW& op, CudaQueue& queue);

}  // namespace weir::stage::ops
