// SPDX-License-Identifier: Apache-2.0
// Operations with sums along rows (one warp or block per row) or columns (one block for 32 columns
// of a slice of rows). Every sum is a fixed tree: lanes in strides, then a butterfly; slices in
// rising order.
#include <cfloat>

#include "worker/stage/ops/cuda/kernel.h"
#include "worker/stage/ops/cuda/launch.h"
#include "worker/stage/ops/squares.h"

namespace weir::stage::ops::cuda {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr int kWarpsPerBlock = 8;
constexpr int kSliceRows = 128;
constexpr int kLossThreads = 256;
constexpr float kEpsilon = 1e-5F;

template <class T>
__device__ T warp_sum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

template <int kWidth, class T>
__global__ void layernorm_forward_kernel(LayerNormShape shape, const T* x, const T* gamma,
                                         const T* beta, T* y, float* statistics) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  if (row >= static_cast<std::size_t>(shape.rows)) return;
  const int channels = shape.channels, first = static_cast<int>(threadIdx.x) * kWidth;
  const T* from = x + row * channels;
  T* to = y + row * channels;
  float sum = 0;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(from + c);
    for (int e = 0; e < kWidth; ++e) sum += wide(in.of[e]);
  }
  const float mean = warp_sum(sum) / channels;
  float squares = 0;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(from + c);
    for (int e = 0; e < kWidth; ++e) {
      const float distance = wide(in.of[e]) - mean;
      squares += distance * distance;
    }
  }
  const float rstd = 1.0F / sqrtf(warp_sum(squares) / channels + kEpsilon);
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(from + c), scale = load<kWidth>(gamma + c);
    const auto shift = load<kWidth>(beta + c);
    Pack<T, kWidth> out;
    for (int e = 0; e < kWidth; ++e) {
      out.of[e] = narrow<T>((wide(in.of[e]) - mean) * rstd * wide(scale.of[e]) + wide(shift.of[e]));
    }
    store(to + c, out);
  }
  if (threadIdx.x == 0) {
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = rstd;
  }
}

template <int kWidth, class T>
__global__ void layernorm_apply_kernel(LayerNormShape shape, const T* x, const float* statistics,
                                       const T* gamma, const T* beta, T* y) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  if (row >= static_cast<std::size_t>(shape.rows)) return;
  const int channels = shape.channels, first = static_cast<int>(threadIdx.x) * kWidth;
  const float mean = statistics[2 * row], rstd = statistics[2 * row + 1];
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + row * channels + c), scale = load<kWidth>(gamma + c);
    const auto shift = load<kWidth>(beta + c);
    Pack<T, kWidth> out;
    for (int e = 0; e < kWidth; ++e) {
      out.of[e] = narrow<T>((wide(in.of[e]) - mean) * rstd * wide(scale.of[e]) + wide(shift.of[e]));
    }
    store(y + row * channels + c, out);
  }
}

// With g = dy gamma and h = (x - mean) rstd:  dx = residual + rstd (g - mean(g) - h mean(g h)).
template <int kWidth, class T>
__global__ void layernorm_input_kernel(LayerNormShape shape, const T* x, const float* statistics,
                                       const T* gamma, const T* dy, const T* residual, T* dx) {
  const std::size_t row = std::size_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  if (row >= static_cast<std::size_t>(shape.rows)) return;
  const int channels = shape.channels, first = static_cast<int>(threadIdx.x) * kWidth;
  const std::size_t begin = row * channels;
  const float mean = statistics[2 * row], rstd = statistics[2 * row + 1];
  float sum_g = 0, sum_gh = 0;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + begin + c), up = load<kWidth>(dy + begin + c);
    const auto scale = load<kWidth>(gamma + c);
    for (int e = 0; e < kWidth; ++e) {
      const float g = wide(up.of[e]) * wide(scale.of[e]);
      sum_g += g;
      sum_gh += g * ((wide(in.of[e]) - mean) * rstd);
    }
  }
  const float mean_g = warp_sum(sum_g) / channels, mean_gh = warp_sum(sum_gh) / channels;
  for (int c = first; c < channels; c += kWarp * kWidth) {
    const auto in = load<kWidth>(x + begin + c), up = load<kWidth>(dy + begin + c);
    const auto scale = load<kWidth>(gamma + c);
    Pack<T, kWidth> past{}, out;
    if (residual != nullptr) past = load<kWidth>(residual + begin + c);
    for (int e = 0; e < kWidth; ++e) {
      const float h = (wide(in.of[e]) - mean) * rstd;
      out.of[e] = narrow<T>(wide(past.of[e]) +
                            rstd * (wide(up.of[e]) * wide(scale.of[e]) - mean_g - h * mean_gh));
    }
    store(dx + begin + c, out);
  }
}

// A block of 32 x 8 threads adds 32 columns of a slice of rows. Thread row j adds the rows j, j+8,
// ... of the slice. partial: (slices, columns).
template <class Term>
__device__ void add_slice(int rows, int columns, float* partial, Term term) {
  static __shared__ float by_thread_row[kWarpsPerBlock][kWarp];
  const int column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x);
  const int begin = static_cast<int>(blockIdx.y) * kSliceRows;
  const int end = rows - begin < kSliceRows ? rows : begin + kSliceRows;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int row = begin + static_cast<int>(threadIdx.y); row < end; row += kWarpsPerBlock) {
      sum += term(row, column);
    }
  }
  by_thread_row[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < columns) {
    float total = 0;
    for (int j = 0; j < kWarpsPerBlock; ++j) total += by_thread_row[j][threadIdx.x];
    partial[std::size_t{blockIdx.y} * columns + column] = total;
  }
  __syncthreads();  // `by_thread_row` is reused
}

__global__ void add_slices_kernel(int slices, int columns, const float* partial, float* sums) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= columns) return;
  float total = 0;
#pragma unroll 8
  for (int slice = 0; slice < slices; ++slice) {
    total += partial[static_cast<std::size_t>(slice) * columns + column];
  }
  sums[column] += total;
}

template <class T>
__global__ void column_sums_kernel(int rows, int columns, const T* x, float* partial) {
  add_slice(rows, columns, partial, [=](int row, int column) {
    return wide(x[static_cast<std::size_t>(row) * columns + column]);
  });
}

template <class T>
__global__ void layernorm_parameters_kernel(LayerNormShape shape, const T* x,
                                            const float* statistics, const T* dy, float* dgamma,
                                            float* dbeta) {
  const int channels = shape.channels;
  add_slice(shape.rows, channels, dgamma, [=](int row, int column) {
    const std::size_t i = static_cast<std::size_t>(row) * channels + column;
    const std::size_t r = row;
    return wide(dy[i]) * ((wide(x[i]) - statistics[2 * r]) * statistics[2 * r + 1]);
  });
  add_slice(shape.rows, channels, dbeta, [=](int row, int column) {
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
  // When the sum is known, all threads have read the target's logit.
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

// One block per chunk.
__global__ void squares_kernel(std::size_t count, const float* values, double* chunks) {
  static __shared__ double shared[kSquaresLanes];
  const std::size_t begin = std::size_t{blockIdx.x} * kSquaresChunk;
  const std::size_t end = count - begin < kSquaresChunk ? count : begin + kSquaresChunk;
  double own = 0;
#pragma unroll 8
  for (std::size_t i = begin + threadIdx.x; i < end; i += kSquaresLanes) {
    own += double{values[i]} * double{values[i]};
  }
  const double sum = block_reduce(own, shared, [](double a, double b) { return a + b; });
  if (threadIdx.x == 0) chunks[blockIdx.x] = sum;
}

unsigned warp_blocks(int rows) {
  return static_cast<unsigned>((rows + kWarpsPerBlock - 1) / kWarpsPerBlock);
}
unsigned column_blocks(int columns) {
  return static_cast<unsigned>((columns + kWarp - 1) / kWarp);
}
int slices_of(int rows) {
  return (rows + kSliceRows - 1) / kSliceRows;
}
dim3 slice_blocks(int rows, int columns) {
  return {column_blocks(columns), static_cast<unsigned>(slices_of(rows))};
}
void add_slices(cudaStream_t stream, int rows, int columns, const float* partial, float* sums) {
  start({stream, column_blocks(columns), kWarp}, add_slices_kernel, slices_of(rows), columns,
        partial, sums);
}
const dim3 kWarps{kWarp, kWarpsPerBlock};

template <class T>
constexpr int kWidest = kWidestPack / sizeof(T);
// True if the rows of all arrays begin at places where the widest packs may begin.
template <class T, class... Arrays>
bool in_packs(LayerNormShape shape, const Arrays*... arrays) {
  return shape.channels % kWidest<T> == 0 && aligned(arrays...);
}

}  // namespace

std::size_t column_sum_floats(int rows, int columns) {
  return static_cast<std::size_t>(slices_of(rows)) * static_cast<std::size_t>(columns);
}

template <class T>
void add_column_sums(cudaStream_t stream, int rows, int columns, const T* x, float* scratch,
                     float* sums) {
  start({stream, slice_blocks(rows, columns), kWarps}, column_sums_kernel<T>, rows, columns, x,
        scratch);
  add_slices(stream, rows, columns, scratch, sums);
}

template <class T>
void layernorm_forward(cudaStream_t stream, LayerNormShape shape, const T* x, const T* gamma,
                       const T* beta, T* y, float* statistics) {
  const auto kernel = in_packs<T>(shape, x, gamma, beta, y)
                          ? layernorm_forward_kernel<kWidest<T>, T>
                          : layernorm_forward_kernel<1, T>;
  start({stream, warp_blocks(shape.rows), kWarps}, kernel, shape, x, gamma, beta, y, statistics);
}

template <class T>
void layernorm_apply(cudaStream_t stream, LayerNormShape shape, const T* x, const float* statistics,
                     const T* gamma, const T* beta, T* y) {
  const auto kernel = in_packs<T>(shape, x, gamma, beta, y) ? layernorm_apply_kernel<kWidest<T>, T>
                                                            : layernorm_apply_kernel<1, T>;
  start({stream, warp_blocks(shape.rows), kWarps}, kernel, shape, x, statistics, gamma, beta, y);
}

template <class T>
void layernorm_backward(cudaStream_t stream, LayerNormShape shape, const T* x,
                        const float* statistics, const T* gamma, const T* dy, const T* residual,
                        T* dx, float* scratch, float* dgamma, float* dbeta) {
  float* slices_of_beta = scratch + column_sum_floats(shape.rows, shape.channels);
  start({stream, slice_blocks(shape.rows, shape.channels), kWarps}, layernorm_parameters_kernel<T>,
        shape, x, statistics, dy, scratch, slices_of_beta);
  add_slices(stream, shape.rows, shape.channels, scratch, dgamma);
  add_slices(stream, shape.rows, shape.channels, slices_of_beta, dbeta);
  const auto kernel = in_packs<T>(shape, x, gamma, dy, residual, dx)
                          ? layernorm_input_kernel<kWidest<T>, T>
                          : layernorm_input_kernel<1, T>;
  start({stream, warp_blocks(shape.rows), kWarps}, kernel, shape, x, statistics, gamma, dy,
        residual, dx);
}

template <class T>
void softmax_loss(cudaStream_t stream, int rows, int vocabulary, const std::int32_t* targets,
                  float scale, T* logits, double* row_losses, double* total) {
  start({stream, static_cast<unsigned>(rows), kLossThreads}, softmax_loss_kernel<T>, vocabulary,
        targets, scale, logits, row_losses);
  start({stream, 1, kLossThreads}, sum_kernel, rows, row_losses, total);
}

std::size_t squares_doubles(std::size_t count) {
  return count / kSquaresChunk + 1;
}

void sum_squares(cudaStream_t stream, std::size_t count, const float* values, double* scratch,
                 double* sum) {
  static_assert(kLossThreads == kSquaresLanes, "the chunks' sums are one more chunk");
  const std::size_t chunks = (count + kSquaresChunk - 1) / kSquaresChunk;
  if (chunks > 0) {
    start({stream, static_cast<unsigned>(chunks), kSquaresLanes}, squares_kernel, count, values,
          scratch);
  }
  start({stream, 1, kLossThreads}, sum_kernel, static_cast<int>(chunks), scratch, sum);
}

template void add_column_sums(cudaStream_t, int, int, const float*, float*, float*);
template void layernorm_forward(cudaStream_t, LayerNormShape, const float*, const float*,
                                const float*, float*, float*);
template void layernorm_apply(cudaStream_t, LayerNormShape, const float*, const float*,
                              const float*, const float*, float*);
template void layernorm_backward(cudaStream_t, LayerNormShape, const float*, const float*,
                                 const float*, const float*, const float*, float*, float*, float*,
                                 float*);
template void softmax_loss(cudaStream_t, int, int, const std::int32_t*, float, float*, double*,
                           double*);
template void add_column_sums(cudaStream_t, int, int, const Bf16*, float*, float*);
template void layernorm_forward(cudaStream_t, LayerNormShape, const Bf16*, const Bf16*, const Bf16*,
                                Bf16*, float*);
template void layernorm_apply(cudaStream_t, LayerNormShape, const Bf16*, const float*, const Bf16*,
                              const Bf16*, Bf16*);
template void layernorm_backward(cudaStream_t, LayerNormShape, const Bf16*, const float*,
                                 const Bf16*, const Bf16*, const Bf16*, Bf16*, float*, float*,
                                 float*);
template void softmax_loss(cudaStream_t, int, int, const std::int32_t*, float, Bf16*, double*,
                           double*);

}  // namespace weir::stage::ops::cuda
