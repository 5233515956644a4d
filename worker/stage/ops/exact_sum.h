// SPDX-License-Identifier: Apache-2.0
// Sums of gradients that do not depend on the order of their terms, so that a step gives the same
// bits however its micro-batches are divided among replicas (sync.mode Exact). Each term is
// rounded to a multiple of 2^-44 and added in double precision: sums of such multiples have no
// rounding error below 2^9, and what has no rounding error has no order. Idea: Demmel and Nguyen,
// "Fast reproducible floating-point summation", 2013, with one bin whose place is fixed.
//
// Gradients are those of the mean loss. A term is off by at most 2^-45 = 2.8e-14, which AdamW with
// epsilon 1e-8 sees as 3e-6 of its rate at most, for any gradient. Above 2^9 sums stay as good as
// doubles are, but the order counts again.
#pragma once

#include <cstddef>

namespace weir::stage::ops {

// sums[i] += terms[i], rounded as above; terms[i] = 0, for the next one.
void add_exactly(std::size_t count, float* terms, double* sums);
// values[i] = the float next to sums[i].
void round_sums(std::size_t count, const double* sums, float* values);

}  // namespace weir::stage::ops
