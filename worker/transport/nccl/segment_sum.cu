// SPDX-License-Identifier: Apache-2.0
// One thread per element, in a grid-stride loop: the speed of the memory is the limit.
#include "worker/transport/nccl/segment_sum.h"

namespace weir::transport::nccl {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kMostBlocks = 64;  // leaves room for compute
constexpr std::size_t kMostInputs = 256;

struct Inputs {
  const double* of[kMostInputs];
};
// 4 KiB; kernels accept up to 32 from CUDA 12.1 on.
struct Weighted {
  const float* of[kMostInputs];
  double weight[kMostInputs];
};

__global__ void add_segments(Inputs inputs, std::size_t ranks, std::size_t count, float* out) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    double sum = inputs.of[0][i];
    for (std::size_t r = 1; r < ranks; ++r) sum = __dadd_rn(sum, inputs.of[r][i]);
    out[i] = __double2float_rn(sum);
  }
}

__global__ void average_segments(Weighted inputs, std::size_t ranks, std::size_t count,
                                 float* out) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    double mean = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      mean = __dadd_rn(mean, __dmul_rn(inputs.weight[r], inputs.of[r][i]));
    }
    out[i] = __double2float_rn(mean);
  }
}

dim3 grid_for(std::size_t count) {
  const std::size_t blocks = (count + kThreads - 1) / kThreads;
  return dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks));
}

}  // namespace

void sum_in_order(cudaStream_t stream, const double* const* inputs, std::size_t ranks,
                  std::size_t count, float* out) {
  if (count == 0) return;
  Inputs all{};
  for (std::size_t r = 0; r < ranks; ++r) all.of[r] = inputs[r];
  void* arguments[] = {&all, &ranks, &count, &out};
  cudaLaunchKernel(add_segments, grid_for(count), dim3(kThreads), arguments, 0, stream);
}

void mean_in_order(cudaStream_t stream, const float* const* inputs, const double* weights,
                   std::size_t ranks, std::size_t count, float* out) {
  if (count == 0) return;
  Weighted all{};
  for (std::size_t r = 0; r < ranks; ++r) {
    all.of[r] = inputs[r];
    all.weight[r] = weights[r];
  }
  void* arguments[] = {&all, &ranks, &count, &out};
  cudaLaunchKernel(average_segments, grid_for(count), dim3(kThreads), arguments, 0, stream);
}

cudaError_t load_segment_kernels() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, add_segments);
  return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, average_segments);
}

}  // namespace weir::transport::nccl
