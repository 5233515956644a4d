// SPDX-License-Identifier: Apache-2.0
// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the form of GPT-2, element by element.
#pragma once

#include <cstddef>

namespace weir::stage::ops {

void gelu_forward(std::size_t count, const float* x, float* y);  // y may be x
// dx = dy gelu'(x); dx may be dy.
void gelu_backward(std::size_t count, const float* x, const float* dy, float* dx);

}  // namespace weir::stage::ops
