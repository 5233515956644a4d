// SPDX-License-Identifier: Apache-2.0
// Operations with sums along rows (one warp or block a row) or columns (one block for 32 columns).
// Every sum is a fixed tree: lanes in strides, then a butterfly.
#include <cfloat>

#include "worker/stage/ops/cuda/kernel.h"
#include "worker/stage/ops/cuda/launch.h"

namespace weir::stage::ops::cuda {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr int kWarpsPerBlock = 8;
constexpr int kLossThreads = 256;
constexpr float kEpsilon = 1e-5F;

template <class T>
__device__ T warp_sum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

template <class T>
__global__ void layernorm_forward_kernel(LayerNormShape shape, const T* x, const T* gamma,
                                         const T* beta, T* y, float* statistics) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  if (row >= static_cast<std::size_t>(shape.rows)) return;
  const int channels = shape.channels;
  const T* from = x + row * channels;
  T* to = y + row * channels;
  float sum = 0;
  for (int c = threadIdx.x; c < channels; c += kWarp) sum += wide(from[c]);
  const float mean = warp_sum(sum) / channels;
  float squares = 0;
  for (int c = threadIdx.x; c < channels; c += kWarp) {
    const float distance = wide(from[c]) - mean;
    squares += distance * distance;
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares) / channels + kEpsilon);
  for (int c = threadIdx.x; c < channels; c += kWarp) {
    to[c] = narrow<T>((wide(from[c]) - mean) * rstd * wide(gamma[c]) + wide(beta[c]));
  }
  if (threadIdx.x == 0) {
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = rstd;
  }
}

template <class T>
__global__ void layernorm_apply_kernel(LayerNormShape shape, const T* x, const float* statistics,
                                       const T* gamma, const T* beta, T* y) {
  const std::size_t row = blockIdx.x;
  const float mean = statistics[2 * row], rstd = statistics[2 * row + 1];
  for (int c = threadIdx.x; c < shape.channels; c += blockDim.x) {
    const std::size_t i = row * shape.channels + c;
    y[i] = narrow<T>((wide(x[i]) - mean) * rstd * wide(gamma[c]) + wide(beta[c]));
  }
}

// With g = dy gamma and h = (x - mean) rstd:  dx = residual + rstd (g - mean(g) - h mean(g h)).
template <class T>
__global__ void layernorm_input_kernel(LayerNormShape shape, const T* x, const float* statistics,
                                       const T* gamma, const T* dy, const T* residual, T* dx) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  if (row >= static_cast<std::size_t>(shape.rows)) return;
  const int channels = shape.channels;
  const std::size_t begin = row * channels;
  const float mean = statistics[2 * row], rstd = statistics[2 * row + 1];
  float sum_g = 0, sum_gh = 0;
  for (int c = threadIdx.x; c < channels; c += kWarp) {
    const float g = wide(dy[begin + c]) * wide(gamma[c]);
    sum_g += g;
    sum_gh += g * ((wide(x[begin + c]) - mean) * rstd);
  }
  const float mean_g = warp_sum(sum_g) / channels, mean_gh = warp_sum(sum_gh) / channels;
  for (int c = threadIdx.x; c < channels; c += kWarp) {
    const float h = (wide(x[begin + c]) - mean) * rstd;
    const float gradient = rstd * (wide(dy[begin + c]) * wide(gamma[c]) - mean_g - h * mean_gh);
    dx[begin + c] = narrow<T>((residual != nullptr ? wide(residual[begin + c]) : 0) + gradient);
  }
}

// A block of 32 x 8 threads adds 32 columns; thread row j takes the rows j, j+8, ...
template <class Term>
__device__ void add_columns(int rows, int columns, float* sums, Term term) {
  static __shared__ float partial[kWarpsPerBlock][kWarp];
  const int column = blockIdx.x * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (int row = threadIdx.y; row < rows; row += kWarpsPerBlock) sum += term(row, column);
  }
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < columns) {
    float total = 0;
    for (int j = 0; j < kWarpsPerBlock; ++j) total += partial[j][threadIdx.x];
    sums[column] += total;
  }
  __syncthreads();  // `partial` is used again
}

template <class T>
__global__ void column_sums_kernel(int rows, int columns, const T* x, float* sums) {
  add_columns(rows, columns, sums, [=](int row, int column) {
    return wide(x[static_cast<std::size_t>(row) * columns + column]);
  });
}

template <class T>
__global__ void layernorm_parameters_kernel(LayerNormShape shape, const T* x,
                                            const float* statistics, const T* dy, float* dgamma,
                                            float* dbeta) {
  const int channels = shape.channels;
  add_columns(shape.rows, channels, dgamma, [=](int row, int column) {
    const std::size_t i = static_cast<std::size_t>(row) * channels + column;
    const std::size_t r = row;
    return wide(dy[i]) * ((wide(x[i]) - statistics[2 * r]) * statistics[2 * r + 1]);
  });
  add_columns(shape.rows, channels, dbeta, [=](int row, int column) {
    return wide(dy[static_cast<std::size_t>(row) * channels + column]);
  });
}

template <class T, class Combine>
__device__ T block_reduce(T value, T* shared, Combine combine) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
  }
  const T result = shared[0];
  __syncthreads();
  return result;
}

template <class T>
__global__ void softmax_loss_kernel(int vocabulary, const std::int32_t* targets, float scale,
                                    T* logits, double* row_losses) {
  static __shared__ float shared[kLossThreads];
  T* row = logits + std::size_t{blockIdx.x} * vocabulary;
  const int target = targets[blockIdx.x];
  float most = -FLT_MAX;
  for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) most = fmaxf(most, wide(row[v]));
  const float top = block_reduce(most, shared, [](float a, float b) { return fmaxf(a, b); });
  const float target_logit = wide(row[target]) - top;
  float own = 0;
  for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) own += expf(wide(row[v]) - top);
  // When it is known, everyone has read the target's logit.
  const float sum = block_reduce(own, shared, [](float a, float b) { return a + b; });
  const float factor = scale / sum;
  for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) {
    row[v] = narrow<T>(expf(wide(row[v]) - top) * factor - (v == target ? scale : 0));
  }
  if (threadIdx.x == 0) row_losses[blockIdx.x] = log(double{sum}) - target_logit;
}

__global__ void sum_kernel(int count, const double* values, double* total) {
  static __shared__ double shared[kLossThreads];
  double own = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x) own += values[i];
  const double sum = block_reduce(own, shared, [](double a, double b) { return a + b; });
  if (threadIdx.x == 0) *total = sum;
}

unsigned warp_blocks(int rows) {
  return static_cast<unsigned>((rows + kWarpsPerBlock - 1) / kWarpsPerBlock);
}
unsigned column_blocks(int columns) {
  return static_cast<unsigned>((columns + kWarp - 1) / kWarp);
}
const dim3 kWarps{kWarp, kWarpsPerBlock};

}  // namespace

template <class T>
void add_column_sums(cudaStream_t stream, int rows, int columns, const T* x, float* sums) {
  start({stream, column_blocks(columns), kWarps}, column_sums_kernel<T>, rows, columns, x, sums);
}

template <class T>
void layernorm_forward(cudaStream_t stream, LayerNormShape shape, const T* x, const T* gamma,
                       const T* beta, T* y, float* statistics) {
  start({stream, warp_blocks(shape.rows), kWarps}, layernorm_forward_kernel<T>, shape, x, gamma,
        beta, y, statistics);
}

template <class T>
void layernorm_apply(cudaStream_t stream, LayerNormShape shape, const T* x, const float* statistics,
                     const T* gamma, const T* beta, T* y) {
  start({stream, static_cast<unsigned>(shape.rows), kWarp * kWarpsPerBlock},
        layernorm_apply_kernel<T>, shape, x, statistics, gamma, beta, y);
}

template <class T>
void layernorm_backward(cudaStream_t stream, LayerNormShape shape, const T* x,
                        const float* statistics, const T* gamma, const T* dy, const T* residual,
                        T* dx, float* dgamma, float* dbeta) {
  start({stream, column_blocks(shape.channels), kWarps}, layernorm_parameters_kernel<T>, shape, x,
        statistics, dy, dgamma, dbeta);
  start({stream, warp_blocks(shape.rows), kWarps}, layernorm_input_kernel<T>, shape, x, statistics,
        gamma, dy, residual, dx);
}

template <class T>
void softmax_loss(cudaStream_t stream, int rows, int vocabulary, const std::int32_t* targets,
                  float scale, T* logits, double* row_losses, double* total) {
  start({stream, static_cast<unsigned>(rows), kLossThreads}, softmax_loss_kernel<T>, vocabulary,
        targets, scale, logits, row_losses);
  start({stream, 1, kLossThreads}, sum_kernel, rows, row_losses, total);
}

template void add_column_sums(cudaStream_t, int, int, const float*, float*);
template void layernorm_forward(cudaStream_t, LayerNormShape, const float*, const float*,
                                const float*, float*, float*);
template void layernorm_apply(cudaStream_t, LayerNormShape, const float*, const float*,
                              const float*, const float*, float*);
template void layernorm_backward(cudaStream_t, LayerNormShape, const float*, const float*,
                                 const float*, const float*, const float*, float*, float*, float*);
template void softmax_loss(cudaStream_t, int, int, const std::int32_t*, float, float*, double*,
                           double*);
template void add_column_sums(cudaStream_t, int, int, const Bf16*, float*);
template void layernorm_forward(cudaStream_t, LayerNormShape, const Bf16*, const Bf16*, const Bf16*,
                                Bf16*, float*);
template void layernorm_apply(cudaStream_t, LayerNormShape, const Bf16*, const float*, const Bf16*,
                              const Bf16*, Bf16*);
template void layernorm_backward(cudaStream_t, LayerNormShape, const Bf16*, const float*,
                                 const Bf16*, const Bf16*, const Bf16*, Bf16*, float*, float*);
template void softmax_loss(cudaStream_t, int, int, const std::int32_t*, float, Bf16*, double*,
                           double*);

}  // namespace weir::stage::ops::cuda
