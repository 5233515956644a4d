// SPDX-License-Identifier: Apache-2.0
// The sum of squares of a gradient, for its norm. The order of the additions is fixed by the count
// alone: chunks of kSquaresChunk values, in each lane l of kSquaresLanes takes the values l,
// l + kSquaresLanes, ... in double, a tree adds up the lanes (the upper half to the lower one); the
// sums of the chunks are added up likewise, as if they were one chunk. The square of a float is
// exact in double. So hosts and devices give the same bits, with fused products or without.
#pragma once

#include <cstddef>

namespace weir::stage::ops {

inline constexpr int kSquaresLanes = 256;
inline constexpr int kSquaresChunk = 64 * kSquaresLanes;

// 0 without values.
double sum_squares(std::size_t count, const float* values);

}  // namespace weir::stage::ops
