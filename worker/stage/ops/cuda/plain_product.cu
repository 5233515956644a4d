// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/cuda/kernel.h"
#include "worker/stage/ops/cuda/plain_product.h"

namespace weir::stage::ops {
namespace {

constexpr int kTile = 16;

template <class Out>
struct Terms {  // Operands, typed
  const Out *c, *bias;
  Out* d;
};

// A block has kTile x kTile elements of D; threadIdx.x is the row, along which all arrays lie that
// are not transposed.
template <class In, class Out>
__global__ void product_kernel(Product p, const In* a, const In* b, Terms<Out> terms) {
  static __shared__ float of_a[kTile][kTile + 1], of_b[kTile][kTile + 1];  // by k, then by place
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.x) * kTile + x;
  const int first_column = static_cast<int>(blockIdx.y) * kTile, column = first_column + y;
  float sum = 0;
  for (int first = 0; first < p.k; first += kTile) {
    const int k = first + y, other = first_column + x;
    const bool has_a = row < p.m && k < p.k, has_b = other < p.n && k < p.k;
    const std::size_t in_a =
        p.transpose_a ? std::size_t{1} * row * p.k + k : std::size_t{1} * k * p.m + row;
    const std::size_t in_b =
        p.transpose_b ? std::size_t{1} * k * p.n + other : std::size_t{1} * other * p.k + k;
    of_a[y][x] = has_a ? wide(a[in_a]) : 0;
    of_b[y][x] = has_b ? wide(b[in_b]) : 0;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += of_a[i][x] * of_b[i][y];
    __syncthreads();  // the tiles are reused
  }
  if (row >= p.m || column >= p.n) return;
  const std::size_t place = std::size_t{1} * column * p.m + row;
  if (terms.c != nullptr) sum += wide(terms.c[place]);
  if (terms.bias != nullptr) sum += wide(terms.bias[row]);
  terms.d[place] = narrow<Out>(sum);
}

template <class In, class Out>
void multiply(cudaStream_t stream, const Product& p, const Operands& o) {
  const auto tiles = [](int extent) { return static_cast<unsigned>((extent + kTile - 1) / kTile); };
  start({stream, {tiles(p.m), tiles(p.n)}, {kTile, kTile}}, product_kernel<In, Out>, p,
        static_cast<const In*>(o.a), static_cast<const In*>(o.b),
        Terms<Out>{static_cast<const Out*>(o.c), static_cast<const Out*>(o.bias),
                   static_cast<Out*>(o.d)});
}

}  // namespace

void multiply_plainly(cudaStream_t stream, const Product& product, const Operands& operands) {
  const bool to_float = product.output == Precision::kFp32;
  if (product.inputs == Precision::kFp32) {
    multiply<float, float>(stream, product, operands);
  } else if (to_float) {
    multiply<Bf16, float>(stream, product, operands);
  } else {
    multiply<Bf16, Bf16>(stream, product, operands);
  }
}

}  // namespace weir::stage::ops
