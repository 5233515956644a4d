// SPDX-License-Identifier: Apache-2.0
// The kernel that adds a segment of gradients on the GPU. C++17: nvcc compiles it.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace weir::transport::nccl {

// Enqueues out[i] = the float next to inputs[0][i] + inputs[1][i] + ..., added in that order in
// double: the bits of sum_doubles_to_floats(). At most 256 inputs; a failure shows in
// cudaPeekAtLastError().
void sum_in_order(cudaStream_t stream, const double* const* inputs, std::size_t ranks,
                  std::size_t count, float* out);

}  // namespace weir::transport::nccl
