// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al., "RoFormer", 2021) in the half-rotation order of Hugging Face: of a
// head of D channels, (x[i], x[i + D/2]) turns by the angle t f[i] with f[i] = theta^(-2i/D), t the
// position. Frequencies and angles are rounded to float, as there; cosines and sines are of double
// and rounded once.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct RotaryShape {
  int samples, sequence;  // B, T
  int heads, size;        // H, D (even): at the begin of each row
  int stride;             // elements of a row, at least H D
  int direction;          // 1, or -1: turns back, which is the gradient, too
  float theta;
  // "llama3" (Llama 3.1): frequencies with a wavelength above original/low are divided by
  // `factor`, those below original/high are not, those between partly. factor 1 = none.
  float factor = 1, low = 1, high = 4, original = 8192;
};

// Turns the heads in place.
struct Rotary {
  RotaryShape shape;
  Element* values;
  auto fields() const { return std::tie(shape, values); }
};
void run_on_host(const Rotary& op, const Host& host);
void run_on_cuda(const Rotary& op, CudaQueue& queue);

// f[i]; on both kinds of devices from the host, so that it has the same bits. i < D/2.
float rotary_frequency(const RotaryShape& shape, int i);

}  // namespace weir::stage::ops
