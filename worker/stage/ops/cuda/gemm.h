// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt: float32 without TF32, or bf16 with sums in float32. The algorithm is
// chosen once per shape and kept, with a workspace of fixed size, so the sums of a shape have the
// same order during the process. What cuBLASLt cannot compute a kernel of ours does
// (plain_product.h).
#pragma once

#include <memory>
#include <string>

#include "worker/base/result.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/ops/cuda/queue.h"

namespace weir::stage::ops {

class Gemm {
 public:
  static Result<std::unique_ptr<Gemm>> make(device::CudaDevice& device);
  virtual ~Gemm() = default;
  // Enqueues the product. The text of the first failure is kept; it is empty if there was none.
  virtual void run(const Product& product, const Operands& operands) = 0;
  virtual const std::string& failure() const = 0;
  virtual void forget_failure() = 0;  // of ops that were recorded but not run
};

}  // namespace weir::stage::ops
