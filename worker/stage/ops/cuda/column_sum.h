// SPDX-License-Identifier: Apache-2.0
// Sums over columns of (rows, columns): one block for 32 columns, or packs of columns, of a slice
// of rows, then the slices in rising order.
#pragma once

#include "worker/stage/ops/cuda/kernel.h"

namespace weir::stage::ops {

constexpr int kWarp = 32;
constexpr int kWarpsPerBlock = 8;
constexpr int kSliceRows = 128;

// A block of 32 x 8 threads adds 32 kWidth columns of a slice of rows. Thread row j adds the rows
// j, j+8, ... of the slice. kWidth divides `columns`. add(row, column, sums) adds the terms of the
// columns from `column` on to sums[kWidth]. partial: (slices, columns).
template <int kWidth, class Add>
__device__ void add_slice(int rows, int columns, float* partial, Add add) {
  static __shared__ float by_thread_row[kWarpsPerBlock][kWidth][kWarp];
  const int column = static_cast<int>(blockIdx.x * kWarp + threadIdx.x) * kWidth;
  const int begin = static_cast<int>(blockIdx.y) * kSliceRows;
  const int end = rows - begin < kSliceRows ? rows : begin + kSliceRows;
  float sums[kWidth] = {};
  if (column < columns) {
#pragma unroll 4
    for (int row = begin + static_cast<int>(threadIdx.y); row < end; row += kWarpsPerBlock) {
      add(row, column, sums);
    }
  }
  for (int e = 0; e < kWidth; ++e) by_thread_row[threadIdx.y][e][threadIdx.x] = sums[e];
  __syncthreads();
  if (threadIdx.y == 0 && column < columns) {
    for (int e = 0; e < kWidth; ++e) {
      float total = 0;
      for (int j = 0; j < kWarpsPerBlock; ++j) total += by_thread_row[j][e][threadIdx.x];
      partial[std::size_t{blockIdx.y} * columns + column + e] = total;
    }
  }
  __syncthreads();  // `by_thread_row` is reused
}
// The sums of term(row, column), column by column.
template <class Term>
__device__ void add_terms(int rows, int columns, float* partial, Term term) {
  add_slice<1>(rows, columns, partial,
               [&](int row, int column, float* sum) { *sum += term(row, column); });
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
  sums[column] = total;
}

inline unsigned column_blocks(int columns, int width = 1) {
  return static_cast<unsigned>((columns + kWarp * width - 1) / (kWarp * width));
}
inline int slices_of(int rows) {
  return (rows + kSliceRows - 1) / kSliceRows;
}
inline dim3 slice_blocks(int rows, int columns, int width = 1) {
  return {column_blocks(columns, width), static_cast<unsigned>(slices_of(rows))};
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
