// SPDX-License-Identifier: Apache-2.0
// Common functions of the .cu files: loads and stores (as in bf16.h, on the device), the start of a
// kernel, and its dynamic shared memory. <<< >>> is not used, so that a host compiler can read
// these files and a test can run their kernels without a GPU (tests/gpu/emulated).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "worker/stage/ops/bf16.h"

namespace weir::stage::ops {

__device__ inline float wide(float value) {
  return value;
}
__device__ inline float wide(Bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

template <class T>
__device__ T narrow(float value);
template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
template <>
__device__ inline Bf16 narrow<Bf16>(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

// Values that one thread loads or stores at once. 16 bytes are the maximum.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T of[kWidth];
};
template <int kWidth, class T>
__device__ Pack<T, kWidth> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}
template <int kWidth, class T>
__device__ void store(T* to, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}
constexpr std::size_t kWidestPack = 16;  // bytes
// True if the arrays can be read in the widest packs.
template <class... T>
bool aligned(const T*... arrays) {
  return (... && (reinterpret_cast<std::uintptr_t>(arrays) % kWidestPack == 0));
}

// As many bytes as the launch requested, aligned for tensor cores.
__device__ inline float* dynamic_shared() {
  extern __shared__ __align__(128) float dynamic_memory[];
  return dynamic_memory;
}

struct Launch {
  cudaStream_t stream;
  dim3 grid, block;
  std::size_t shared = 0;  // bytes
};

// Enqueues the kernel. A failure shows in cudaPeekAtLastError().
template <class... Parameters>
void start(const Launch& launch, void (*kernel)(Parameters...),
           std::common_type_t<Parameters>... arguments) {
  void* pointers[] = {&arguments...};
  cudaLaunchKernel(kernel, launch.grid, launch.block, pointers, launch.shared, launch.stream);
}

}  // namespace weir::stage::ops
