// SPDX-License-Identifier: Apache-2.0
// Sums over columns of (rows, columns): one block for 32 columns of a slice of rows, then the
// slices in rising order.
#pragma once

#include "worker/stage/ops/cuda/kernel.h"

namespace weir::stage::ops {

constexpr int kWarp = 32;
constexpr int kWarpsPerBlock = 8;
constexpr int kSliceRows = 128;

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

template <class T>
__global__ void add_slices_kernel(int slices, int columns, const T* partial, T* sums) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= columns) return;
  T total = 0;
#pragma unroll 8
  for (int slice = 0; slice < slices; ++slice) {
    total += partial[static_cast<std::size_t>(slice) * columns + column];
  }
  sums[column] += total;
}

inline unsigned column_blocks(int columns) {
  return static_cast<unsigned>((columns + kWarp - 1) / kWarp);
}
inline int slices_of(int rows) {
  return (rows + kSliceRows - 1) / kSliceRows;
}
inline dim3 slice_blocks(int rows, int columns) {
  return {column_blocks(columns), static_cast<unsigned>(slices_of(rows))};
}
inline void add_slices(cudaStream_t stream, int rows, int columns, const float* partial,
                       float* sums) {
  start({stream, column_blocks(columns), kWarp}, add_slices_kernel<float>, slices_of(rows), columns,
        partial, sums);
}
inline dim3 warps_of_block() {
  return {kWarp, kWarpsPerBlock};
}
// Size of the scratch memory for the sums of the slices.
inline std::size_t column_sum_floats(int rows, int columns) {
  return static_cast<std::size_t>(slices_of(rows)) * static_cast<std::size_t>(columns);
}

}  // namespace weir::stage::ops
