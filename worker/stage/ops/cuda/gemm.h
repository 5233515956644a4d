// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt: float32 without TF32, or bf16 with sums in float32. The algorithm is
// chosen once per shape and kept, with a workspace of fixed size, so the sums of a shape have the
// same order during the process.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/base/result.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/precision.h"

namespace weir::stage::ops::cuda {

// D (m,n) = op(A) op(B) + beta C + bias, all column-major as in BLAS; beta is 0 or 1. The bias has
// one element per row of D. The result is rounded once, when D is stored.
struct Product {
  int m, n, k;
  bool transpose_a, transpose_b;
  int lda, ldb, ldd;  // C has the layout of D
  float beta;
  bool adds_bias;
  Precision inputs, output;  // of A and B; of C, D and the bias
};

struct Operands {  // device memory
  const void *a, *b;
  const void* c;     // not read if beta is 0
  const void* bias;  // read only if the product adds a bias
  void* d;           // may be equal to c
};

class Gemm {
 public:
  static Result<std::unique_ptr<Gemm>> make(device::CudaDevice& device);
  virtual ~Gemm() = default;
  // Enqueues the product. The text of the first failure is kept; it is empty if there was none.
  virtual void run(const Product& product, const Operands& operands) = 0;
  virtual const std::string& failure() const = 0;
  virtual void forget_failure() = 0;  // of ops that were recorded but not run
};

}  // namespace weir::stage::ops::cuda
