// SPDX-License-Identifier: Apache-2.0
// Clipping by the global norm of the gradients: sums of squares per layer travel to stage 0 behind
// the last gradient, stage 0 adds them up in the order of the layers, and the sum travels to all
// stages. So the norm, and every number that follows from it, is the same bit for bit for every
// cut. The same sum decides whether the step is worth anything: with gradients or a loss that are
// no finite numbers no rank updates its parameters. Pure: the stage makes the sums and scales the
// gradients.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/base/result.h"

namespace weir::engine {

double sum_in_order(std::span<const double> squares);

// limit / norm when the norm, the root of `squares`, is above the limit, else 1. limit 0: 1.
float clip_factor(double squares, double limit);

// May parameters be updated with a gradient of that sum of squares? Not when it is infinite or no
// number, nor when Adam's second moment, a float, could not hold a square of it. A gradient that is
// clipped may be of any finite size.
bool is_usable(double squares, double limit);

// The sums of the last stage, with a loss that is no finite number in them: one note carries both.
std::vector<double> with_loss(std::vector<double> squares, double loss);

// Notes between neighbours. The verdict carries the limit, so that ranks with different options
// find out.
std::vector<std::byte> encode_squares(std::span<const double> squares);
std::vector<double> decode_squares(std::span<const std::byte> note);
constexpr std::size_t kVerdictBytes = 2 * sizeof(double);
std::vector<std::byte> encode_verdict(double squares, double limit);
// kConflict "--grad-clip is 0.5 here, 1 on the stage before".
Result<double> decode_verdict(std::span<const std::byte> note, double limit);

}  // namespace weir::engine
