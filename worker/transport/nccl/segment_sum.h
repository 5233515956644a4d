// SPDX-License-Identifier: Apache-2.0
// Kernels that add a segment of the replicas' gradients, or average one of their parameters, on the
// GPU. C++17: nvcc compiles it.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace weir::transport::nccl {

// Enqueues out[i] = the float nearest to inputs[0][i] + inputs[1][i] + ..., added in that order in
// double: bit-equal to sum_doubles_to_floats(). At most 256 inputs. A failure shows in
// cudaPeekAtLastError().
void sum_in_order(cudaStream_t stream, const double* const* inputs, std::size_t ranks,
                  std::size_t count, float* out);
// Enqueues out[i] = the float nearest to weights[0] x inputs[0][i] + ..., with every product and
// every sum rounded to double: bit-equal to mean_of_floats().
void mean_in_order(cudaStream_t stream, const float* const* inputs, const double* weights,
                   std::size_t ranks, std::size_t count, float* out);
// Loads the kernels. Otherwise CUDA loads them at the first launch and may then wait for everything
// that runs on the device, including a transfer that waits for this rank.
cudaError_t load_segment_kernels();

}  // namespace weir::transport::nccl
