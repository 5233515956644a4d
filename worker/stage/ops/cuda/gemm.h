// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt, float32 without TF32. The algorithm is chosen once per shape and
// kept, with a workspace of fixed size, so that a shape's sums have one order within a process.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/base/result.h"
#include "worker/device/cuda/cuda_device.h"

namespace weir::stage::ops::cuda {

// C (m,n) = op(A) op(B) + beta C, all column-major as in BLAS; beta is 0 or 1.
struct Product {
  int m, n, k;
  bool transpose_a, transpose_b;
  int lda, ldb, ldc;
  float beta;
  bool operator<(const Product& other) const;
};

class Gemm {
 public:
  static Result<std::unique_ptr<Gemm>> make(device::CudaDevice& device);
  virtual ~Gemm() = default;
  // Enqueues. A failure is kept: the first one's text, empty when all is well.
  virtual void run(const Product& product, const float* a, const float* b, float* c) = 0;
  virtual const std::string& failure() const = 0;
};

}  // namespace weir::stage::ops::cuda
