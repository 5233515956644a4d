// SPDX-License-Identifier: Apache-2.0
// Clipping by the global norm of the gradients. Sums of squares per layer travel to stage 0 behind
// the last gradient. Stage 0 adds them in the order of the layers, and the sum travels to all
// stages. So the norm, and every number that depends on it, is bit-equal for every cut. The sum
// also decides whether ranks update their parameters: if a gradient or the loss is not finite, no
// rank does. Pure: the stage computes the sums and scales the gradients.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/base/result.h"

namespace weir::engine {

double sum_in_order(std::span<const double> squares);

// Returns limit / norm if the norm, the root of `squares`, is above the limit, else 1. Returns 1
// for limit 0.
float clip_factor(double squares, double limit);

// True if parameters may be updated with gradients that have this sum of squares. False if it is
// not finite, or if Adam's second moment, a float, would overflow. With a limit, gradients of any
// finite size are allowed, because they are clipped.
bool is_usable(double squares, double limit);

// Makes the sums of the last stage not finite if the loss is not finite, so that one note carries
// both.
std::vector<double> with_loss(std::vector<double> squares, double loss);

// Notes between neighbours. The verdict carries the limit, so that ranks detect different options.
std::vector<std::byte> encode_squares(std::span<const double> squares);
std::vector<double> decode_squares(std::span<const std::byte> note);
constexpr std::size_t kVerdictBytes = 2 * sizeof(double);
std::vector<std::byte> encode_verdict(double squares, double limit);
// The error is kConflict, e.g. "--grad-clip is 0.5 here, 1 on the stage before".
Result<double> decode_verdict(std::span<const std::byte> note, double limit);

}  // namespace weir::engine
