// SPDX-License-Identifier: Apache-2.0
// Packed, tiled product after Goto and van de Geijn ("Anatomy of High-Performance Matrix
// Multiplication", 2008): a 6 x 16 tile of C stays in registers while a panel of B stays in the L1
// cache. Edges are padded with zeros in the packed copies. Working memory is on the stack. The
// three inner loops are one body compiled for three instruction sets, because an ifunc
// (target_clones) crashes under ThreadSanitizer.
#include <algorithm>

#include "worker/stage/ops/gemm.h"

namespace weir::stage::ops {
namespace {

using Index = std::ptrdiff_t;
constexpr Index kTileRows = 6, kTileColumns = 16;  // 6 x 16 sums: 6, 12 or 24 registers
constexpr Index kDepth = 256;         // of a panel: 16 x 256 floats = 16 KiB, half an L1 cache
constexpr Index kBlockRows = 96;      // of A packed at a time: 96 KiB
constexpr Index kBlockColumns = 128;  // of B packed at a time: 128 KiB; both fit into the L2 cache

template <int kBytes>
struct VecOf {
  using type [[gnu::vector_size(kBytes)]] = float;
};

// c (6,16) += a (k,6) b (k,16), all packed.
template <int kBytes>
[[gnu::always_inline]] inline void tile_body(Index k, const float* __restrict a,
                                             const float* __restrict b, float* __restrict c,
                                             Index c_stride) {
  using Vec = typename VecOf<kBytes>::type;
  constexpr Index kWidth = kBytes / Index{sizeof(float)};
  constexpr Index kVectors = kTileColumns / kWidth;
  Vec sums[kTileRows][kVectors];
#pragma GCC unroll 8
  for (Index i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (Index j = 0; j < kVectors; ++j) {
      __builtin_memcpy(&sums[i][j], c + i * c_stride + j * kWidth, kBytes);
    }
  }
  for (Index p = 0; p < k; ++p, a += kTileRows, b += kTileColumns) {
#pragma GCC unroll 8
    for (Index j = 0; j < kVectors; ++j) {
      Vec row;
      __builtin_memcpy(&row, b + j * kWidth, kBytes);
#pragma GCC unroll 8
      for (Index i = 0; i < kTileRows; ++i) sums[i][j] += a[i] * row;
    }
  }
#pragma GCC unroll 8
  for (Index i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (Index j = 0; j < kVectors; ++j) {
      __builtin_memcpy(c + i * c_stride + j * kWidth, &sums[i][j], kBytes);
    }
  }
}

using Tile = void (*)(Index, const float*, const float*, float*, Index);
void tile_baseline(Index k, const float* a, const float* b, float* c, Index c_stride) {
  tile_body<16>(k, a, b, c, c_stride);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] void tile_avx2(Index k, const float* a, const float* b, float* c,
                                       Index c_stride) {
  tile_body<32>(k, a, b, c, c_stride);
}
[[gnu::target("avx512f")]] void tile_avx512(Index k, const float* a, const float* b, float* c,
                                            Index c_stride) {
  tile_body<64>(k, a, b, c, c_stride);
}
#endif

Tile tile_of(GemmKernel kernel) {
  switch (kernel) {
#if defined(__x86_64__)
    case GemmKernel::kAvx512:
      return tile_avx512;
    case GemmKernel::kAvx2:
      return tile_avx2;
#else
    case GemmKernel::kAvx512:
    case GemmKernel::kAvx2:
#endif
    case GemmKernel::kBaseline:
      break;
  }
  return tile_baseline;
}

// Packs panels of kWidth rows of a (rows, k) view, each as (k, kWidth); rows beyond the edge are
// zero.
template <Index kWidth>
void pack(MatrixView view, Index rows, Index k, float* __restrict to) {
  for (Index first = 0; first < rows; first += kWidth) {
    const Index count = std::min(kWidth, rows - first);
    const float* from = view.data + first * view.row_stride;
    for (Index p = 0; p < k; ++p, to += kWidth, from += view.column_stride) {
      if (count == kWidth && view.row_stride == 1) {
        for (Index i = 0; i < kWidth; ++i) to[i] = from[i];
      } else if (count == kWidth) {
        for (Index i = 0; i < kWidth; ++i) to[i] = from[i * view.row_stride];
      } else {
        for (Index i = 0; i < kWidth; ++i) to[i] = i < count ? from[i * view.row_stride] : 0.0F;
      }
    }
  }
}

// A tile at the edge of C goes through a copy, so that the inner loop has one shape.
void edge_tile(Tile tile, Index k, const float* a, const float* b, float* c, Index c_stride,
               Index rows, Index columns) {
  float copy[kTileRows * kTileColumns] = {};
  for (Index i = 0; i < rows; ++i) {
    std::copy_n(c + i * c_stride, columns, copy + i * kTileColumns);
  }
  tile(k, a, b, copy, kTileColumns);
  for (Index i = 0; i < rows; ++i) {
    std::copy_n(copy + i * kTileColumns, columns, c + i * c_stride);
  }
}

// Block of C (m,n) += packed A (m,k) x packed B (k,n).
void block(Tile tile, GemmShape shape, const float* a, const float* b, float* c, Index c_stride) {
  for (Index j = 0; j < shape.n; j += kTileColumns, b += kTileColumns * shape.k) {
    const Index columns = std::min<Index>(kTileColumns, shape.n - j);
    const float* a_panel = a;
    for (Index i = 0; i < shape.m; i += kTileRows, a_panel += kTileRows * shape.k) {
      const Index rows = std::min<Index>(kTileRows, shape.m - i);
      float* corner = c + i * c_stride + j;
      if (rows == kTileRows && columns == kTileColumns) {
        tile(shape.k, a_panel, b, corner, c_stride);
      } else {
        edge_tile(tile, shape.k, a_panel, b, corner, c_stride, rows, columns);
      }
    }
  }
}

MatrixView moved(MatrixView view, Index rows, Index columns) {
  view.data += rows * view.row_stride + columns * view.column_stride;
  return view;
}

GemmKernel best_kernel() {
  for (const auto kernel : {GemmKernel::kAvx512, GemmKernel::kAvx2}) {
    if (supported(kernel)) return kernel;
  }
  return GemmKernel::kBaseline;
}

// How many of the team's threads share a product, as a grid over C.
struct Grid {
  Index rows, columns;
};

// The grid with `cells` cells whose cells are nearest to squares: a cell packs its rows of A and
// its columns of B.
Grid grid_of(Index cells, GemmShape shape) {
  Grid best{1, cells};
  const auto packed = [&](const Grid& grid) {
    return shape.m / static_cast<double>(grid.rows) + shape.n / static_cast<double>(grid.columns);
  };
  for (Index rows = 2; rows <= cells; ++rows) {
    if (cells % rows != 0) continue;
    const Grid grid{rows, cells / rows};
    if (packed(grid) < packed(best)) best = grid;
  }
  return best;
}

// Part i of `count` parts of 0 .. extent-1, from a border of a tile to one.
struct Range {
  Index begin, end;
};
Range part_of(Index extent, Index tile, Index i, Index count) {
  const Index tiles = (extent + tile - 1) / tile;
  return {std::min(extent, tiles * i / count * tile),
          std::min(extent, tiles * (i + 1) / count * tile)};
}

}  // namespace

bool supported(GemmKernel kernel) {
  switch (kernel) {
#if defined(__x86_64__)
    case GemmKernel::kAvx512:
      return __builtin_cpu_supports("avx512f") != 0;
    case GemmKernel::kAvx2:
      return __builtin_cpu_supports("avx2") != 0;
#else
    case GemmKernel::kAvx512:
    case GemmKernel::kAvx2:
      return false;
#endif
    case GemmKernel::kBaseline:
      break;
  }
  return true;
}

void gemm_with(GemmKernel kernel, GemmShape shape, MatrixView a, MatrixView b, float* c,
               std::ptrdiff_t c_row_stride, Sum sum) {
  alignas(64) float packed_a[kBlockRows * kDepth];
  alignas(64) float packed_b[kBlockColumns * kDepth];
  const Tile tile = tile_of(kernel);
  if (sum == Sum::kReplace) {
    for (Index i = 0; i < shape.m; ++i) std::fill_n(c + i * c_row_stride, shape.n, 0.0F);
  }
  for (Index p = 0; p < shape.k; p += kDepth) {
    const Index depth = std::min<Index>(kDepth, shape.k - p);
    for (Index j = 0; j < shape.n; j += kBlockColumns) {
      const Index columns = std::min<Index>(kBlockColumns, shape.n - j);
      pack<kTileColumns>(transposed(moved(b, p, j)), columns, depth, packed_b);
      for (Index i = 0; i < shape.m; i += kBlockRows) {
        const Index rows = std::min<Index>(kBlockRows, shape.m - i);
        pack<kTileRows>(moved(a, i, p), rows, depth, packed_a);
        const GemmShape part{static_cast<int>(rows), static_cast<int>(columns),
                             static_cast<int>(depth)};
        block(tile, part, packed_a, packed_b, c + i * c_row_stride + j, c_row_stride);
      }
    }
  }
}

void gemm(GemmShape shape, MatrixView a, MatrixView b, float* c, std::ptrdiff_t c_row_stride,
          Sum sum) {
  static const GemmKernel kernel = best_kernel();  // constant on one machine
  gemm_with(kernel, shape, a, b, c, c_row_stride, sum);
}

void gemm(Team& team, GemmShape shape, MatrixView a, MatrixView b, float* c,
          std::ptrdiff_t c_row_stride, Sum sum) {
  // The caller's thread does a product of some microseconds alone.
  constexpr Index kLeastProducts = Index{1} << 18;
  const Index products = Index{shape.m} * shape.n * shape.k;
  team.share(products, kLeastProducts, [&](Index cells, Index cell) {
    const Grid grid = grid_of(cells, shape);
    const Range rows = part_of(shape.m, kTileRows, cell / grid.columns, grid.rows);
    const Range columns = part_of(shape.n, kTileColumns, cell % grid.columns, grid.columns);
    const GemmShape part{static_cast<int>(rows.end - rows.begin),
                         static_cast<int>(columns.end - columns.begin), shape.k};
    gemm(part, moved(a, rows.begin, 0), moved(b, 0, columns.begin),
         c + rows.begin * c_row_stride + columns.begin, c_row_stride, sum);
  });
}

}  // namespace weir::stage::ops
