// SPDX-License-Identifier: Apache-2.0
// Every operation of the built-in models, on the device that a stage lives on. Contracts (shapes,
// += or =) are those of the operation's own header; pointers are that device's memory. Ops run in
// the order of the calls; on a device other than the host they are only enqueued, and a failure
// shows at status() or Device::synchronize(). Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/stage/ops/adamw.h"
#include "worker/stage/ops/attention.h"
#include "worker/stage/ops/embedding.h"
#include "worker/stage/ops/exact_sum.h"
#include "worker/stage/ops/layernorm.h"
#include "worker/stage/ops/linear.h"

namespace weir::stage::ops {

class Kernels {
 public:
  virtual ~Kernels() = default;

  virtual void zero(float* values, std::size_t count) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;  // host or device memory

  virtual void linear_forward(LinearShape shape, const float* x, const float* weight,
                              const float* bias, const float* residual, float* y) = 0;
  virtual void linear_backward_parameters(LinearShape shape, const float* x, const float* dy,
                                          float* dweight, float* dbias) = 0;
  virtual void linear_backward_input(LinearShape shape, const float* dy, const float* weight,
                                     float* dx) = 0;

  virtual void layernorm_forward(LayerNormShape shape, const float* x, const float* gamma,
                                 const float* beta, float* y, float* statistics) = 0;
  virtual void layernorm_apply(LayerNormShape shape, const float* x, const float* statistics,
                               const float* gamma, const float* beta, float* y) = 0;
  virtual void layernorm_backward(LayerNormShape shape, const float* x, const float* statistics,
                                  const float* gamma, const float* dy, const float* residual,
                                  float* dx, float* dgamma, float* dbeta) = 0;

  virtual void attention_forward(AttentionShape shape, const float* qkv, float* y, float* log_sums,
                                 float* scratch) = 0;
  virtual void attention_backward(AttentionShape shape, const float* qkv, const float* y,
                                  const float* log_sums, const float* dy, float* dqkv,
                                  float* scratch) = 0;

  virtual void gelu_forward(std::size_t count, const float* x, float* y) = 0;
  virtual void gelu_backward(std::size_t count, const float* x, const float* dy, float* dx) = 0;
  virtual void relu_forward(std::size_t count, const float* x, float* y) = 0;
  virtual void relu_backward(std::size_t count, const float* x, const float* dy, float* dx) = 0;

  virtual void embedding_forward(EmbeddingShape shape, const std::int32_t* tokens,
                                 const float* token_table, const float* position_table,
                                 float* y) = 0;
  virtual void embedding_backward(EmbeddingShape shape, const std::int32_t* tokens, const float* dy,
                                  float* dtoken_table, float* dposition_table) = 0;
  virtual void context_embedding_forward(ContextShape shape, const std::int32_t* tokens,
                                         const float* table, float* y) = 0;
  virtual void context_embedding_backward(ContextShape shape, const std::int32_t* tokens,
                                          const float* dy, float* dtable) = 0;

  // Waits for its result.
  virtual double softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                              float* logits) = 0;
  virtual void adamw(const AdamWStep& step, std::size_t count, const float* gradient, float* value,
                     float* m, float* v) = 0;

  virtual void add_exactly(std::size_t count, float* terms, double* sums) = 0;
  virtual void round_sums(std::size_t count, const double* sums, float* values) = 0;

  // kInternal: a call could not be enqueued (its text). The stage asks after each op.
  virtual Status status() const { return Unit{}; }
};

// The kernels of the device; it must outlive them. kInternal when the device's libraries fail.
Result<std::unique_ptr<Kernels>> make_kernels(device::Device& device);
std::unique_ptr<Kernels> make_host_kernels();
Result<std::unique_ptr<Kernels>> make_cuda_kernels(device::Device& device);  // WEIR_CUDA only

}  // namespace weir::stage::ops
