// SPDX-License-Identifier: Apache-2.0
// y = max(x, 0), element by element; the slope at 0 is 0.
#pragma once

#include <cstddef>

namespace weir::stage::ops {

void relu_forward(std::size_t count, const float* x, float* y);                     // y may be x
void relu_backward(std::size_t count, const float* x, const float* dy, float* dx);  // dx may be dy

}  // namespace weir::stage::ops
