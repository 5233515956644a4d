// SPDX-License-Identifier: Apache-2.0
// With what ops enqueue their kernels on a CUDA device. C++17: nvcc compiles it.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include "worker/stage/ops/bf16.h"
#include "worker/stage/precision.h"

namespace weir::stage::ops {

// D (m,n) = op(A) op(B) + C + bias, all column-major as in BLAS, without gaps between columns. The
// bias has one element per row of D. The result is rounded once, when D is stored.
struct Product {
  int m, n, k;
  bool transpose_a, transpose_b;
  Precision inputs, output;  // of A and B; of C, D and the bias
};

struct Operands {  // device memory
  const void *a, *b;
  const void *c, *bias;  // may be null
  void* d;               // may be equal to c
};

class CudaQueue {
 public:
  CudaQueue(cudaStream_t of_device, Precision of_ops) : stream(of_device), precision(of_ops) {}
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  const cudaStream_t stream;
  const Precision precision;

  // Enqueues the product; a failure shows in Kernels::status().
  virtual void multiply(const Product& product, const Operands& operands) = 0;
  // Memory for `count` values until the next op. Null: no memory is left, which shows in status().
  template <class Value>
  Value* scratch(std::size_t count) {
    return static_cast<Value*>(scratch_bytes(count * sizeof(Value)));
  }

 protected:
  ~CudaQueue() = default;

 private:
  virtual void* scratch_bytes(std::size_t bytes) = 0;
};

// f(value of the type of an Element)
template <class F>
void with_element(const CudaQueue& queue, F f) {
  if (queue.precision == Precision::kBf16) {
    f(Bf16{});
  } else {
    f(0.0F);
  }
}

}  // namespace weir::stage::ops
