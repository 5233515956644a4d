// SPDX-License-Identifier: Apache-2.0
// Clipping by the global norm of the gradients: sums of squares per layer travel to stage 0 behind
// the last gradient, stage 0 adds them up in the order of the layers, and the sum travels to all
// stages. So the norm, and every number that follows from it, is the same bit for bit for every
// cut. Pure: the stage makes the sums and scales the gradients.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/base/result.h"

namespace weir::engine {

double sum_in_order(std::span<const double> squares);

// limit / norm when the norm, the root of `squares`, is above the limit, else 1. A norm that is not
// finite gives 1, too: there is no right factor.
float clip_factor(double squares, double limit);

// Notes between neighbours. The verdict carries the limit, so that ranks with different options
// find out.
std::vector<std::byte> encode_squares(std::span<const double> squares);
std::vector<double> decode_squares(std::span<const std::byte> note);
constexpr std::size_t kVerdictBytes = 2 * sizeof(double);
std::vector<std::byte> encode_verdict(double squares, double limit);
// kConflict "--grad-clip is 0.5 here, 1 on the stage before".
Result<double> decode_verdict(std::span<const std::byte> note, double limit);

}  // namespace weir::engine
