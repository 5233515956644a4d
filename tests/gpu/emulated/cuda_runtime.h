// SPDX-License-Identifier: Apache-2.0
// As much of CUDA's header as the worker's kernels use, for a host compiler: kernels run on the
// host, block after block, the threads of a block as coroutines that switch at barriers and warp
// exchanges. Shows wrong indices and missing barriers of a block (warps and lanes run in a random
// order, another one for each seed: races_test.cpp), nothing of speed or of other blocks. One
// stream, one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <math.h>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __shared__
#define __launch_bounds__(threads)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct dim3 {
  dim3(unsigned x_count = 1, unsigned y_count = 1, unsigned z_count = 1)
      : x(x_count), y(y_count), z(z_count) {}
  unsigned x, y, z;
};
inline dim3 gridDim, blockDim, blockIdx, threadIdx;

struct uint4 {
  unsigned x, y, z, w;
};

struct CUstream_st;
using cudaStream_t = CUstream_st*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaMemcpyKind { cudaMemcpyDeviceToHost = 2, cudaMemcpyDefault = 4 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

namespace weir::emulated {

// Runs `thread` for each thread of each block; threadIdx and the others are set in it. Remembers an
// error when the launch is not legal on compute capability 8.0, or when a barrier waits for threads
// that never come.
void run_grid(dim3 grid, dim3 block, std::size_t shared, const std::function<void()>& thread);
// What is put into the one stream: runs at once, or is taken down while a graph is captured.
void enqueue(std::function<void()> op);
cudaError_t last_error();
void fail();                    // sets it
void set_order(unsigned seed);  // of warps and lanes from here on
void wait_for_block();
void wait_for_warp();
int any_of_block(int value);
int lane();  // of the warp
// The value that lane (own ^ offset) has given.
std::uint64_t exchange(std::uint64_t value, int offset);
// The values that all lanes of the warp have given, by lane; wait_for_warp() comes before the next.
const std::uint64_t* of_warp(std::uint64_t value);
// 16 bytes that arrive when the thread calls finish_copies(), and no earlier; zeros from null.
void copy_later(void* to, const void* from);
void finish_copies();

}  // namespace weir::emulated

template <class... P, std::size_t... I>
std::tuple<P...> copied(void** arguments, std::index_sequence<I...>) {
  return {*static_cast<P*>(arguments[I])...};
}
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                             std::size_t shared, cudaStream_t) {
  const auto values = copied<P...>(arguments, std::index_sequence_for<P...>());
  weir::emulated::enqueue(
      [=] { weir::emulated::run_grid(grid, block, shared, [&] { std::apply(kernel, values); }); });
  return weir::emulated::last_error();
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int) {
  return cudaSuccess;
}
struct cudaFuncAttributes {};
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel) {
  return cudaSuccess;
}
inline cudaError_t cudaPeekAtLastError() {
  return weir::emulated::last_error();
}
cudaError_t cudaGetLastError();  // forgets it
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "the launch is not legal, or a barrier never ends";
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  weir::emulated::enqueue([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  weir::emulated::enqueue([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

struct CUgraph_st;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraph_st*;  // the same here
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t);

inline void __syncthreads() {
  weir::emulated::wait_for_block();
}
inline int __syncthreads_or(int value) {
  return weir::emulated::any_of_block(value);
}
inline void __syncwarp() {
  weir::emulated::wait_for_warp();
}
template <class T>
T __shfl_xor_sync(unsigned /*lanes*/, T value, int offset) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = weir::emulated::exchange(bits, offset);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float __expf(float value) {
  return expf(value);
}
inline float rsqrtf(float value) {
  return 1 / sqrtf(value);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline int __float2int_rn(float value) {
  return static_cast<int>(std::nearbyint(value));
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __double2float_rn(double value) {
  return static_cast<float>(value);
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
