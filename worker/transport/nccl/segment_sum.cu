// SPDX-License-Identifier: Apache-2.0
// One thread per element, in a grid-stride loop: the memory's speed is the limit.
#include "worker/transport/nccl/segment_sum.h"

namespace weir::transport::nccl {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kMostBlocks = 64;  // compute goes on beside it
constexpr std::size_t kMostInputs = 256;

struct Inputs {
  const double* of[kMostInputs];
};

__global__ void add_segments(Inputs inputs, std::size_t ranks, std::size_t count, float* out) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    double sum = inputs.of[0][i];
    for (std::size_t r = 1; r < ranks; ++r) sum = __dadd_rn(sum, inputs.of[r][i]);
    out[i] = __double2float_rn(sum);
  }
}

}  // namespace

void sum_in_order(cudaStream_t stream, const double* const* inputs, std::size_t ranks,
                  std::size_t count, float* out) {
  if (count == 0) return;
  Inputs all{};
  for (std::size_t r = 0; r < ranks; ++r) all.of[r] = inputs[r];
  const std::size_t blocks = (count + kThreads - 1) / kThreads;
  const dim3 grid(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks));
  void* arguments[] = {&all, &ranks, &count, &out};
  cudaLaunchKernel(add_segments, grid, dim3(kThreads), arguments, 0, stream);
}

}  // namespace weir::transport::nccl
