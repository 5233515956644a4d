// SPDX-License-Identifier: Apache-2.0
// The kernels that add a segment of the replicas' gradients, or average one of their parameters, on
// the GPU. C++17: nvcc compiles it.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace weir::transport::nccl {

// Enqueues out[i] = the float next to inputs[0][i] + inputs[1][i] + ..., added in that order in
// double: the bits of sum_doubles_to_floats(). At most 256 inputs; a failure shows in
// cudaPeekAtLastError().
void sum_in_order(cudaStream_t stream, const double* const* inputs, std::size_t ranks,
                  std::size_t count, float* out);
// Likewise out[i] = the float next to weights[0] x inputs[0][i] + ..., every product and every sum
// rounded to double: the bits of mean_of_floats().
void mean_in_order(cudaStream_t stream, const float* const* inputs, const double* weights,
                   std::size_t ranks, std::size_t count, float* out);
// Loads the kernels. CUDA does it at the first launch otherwise, and may then wait for all that
// runs on the device, a transfer that waits for this rank among it.
cudaError_t load_segment_kernels();

}  // namespace weir::transport::nccl
