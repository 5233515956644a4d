// SPDX-License-Identifier: Apache-2.0
// Calls of operations as objects, which can be made later or repeatedly. Pointers are kept, so what
// they point to must still be valid when a call is made.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "worker/stage/ops/kernels.h"

namespace weir::stage::ops {

// One call with its arguments.
class Call {
 public:
  virtual ~Call() = default;
  virtual std::string name() const = 0;            // e.g. "gelu_forward", "linear_forward 768x3072"
  virtual bool same(const Call& other) const = 0;  // operation and arguments, bit for bit
  virtual void make(Kernels& kernels) const = 0;
};

// Kernels that pass each call to `sink` instead of making it.
class CallRecorder : public Kernels {
 public:
  using Sink = std::function<void(std::unique_ptr<Call> call)>;
  explicit CallRecorder(Sink sink) : sink_(std::move(sink)) {}

  void zero(float* values, std::size_t count) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void linear_forward(LinearShape shape, const Element* x, const Element* weight,
                      const Element* bias, const Element* residual, Element* y) override;
  void linear_backward_parameters(LinearShape shape, const Element* x, const Element* dy,
                                  float* dweight, float* dbias) override;
  void linear_backward_input(LinearShape shape, const Element* dy, const Element* weight,
                             Element* dx) override;
  void layernorm_forward(LayerNormShape shape, const Element* x, const Element* gamma,
                         const Element* beta, Element* y, float* statistics) override;
  void layernorm_apply(LayerNormShape shape, const Element* x, const float* statistics,
                       const Element* gamma, const Element* beta, Element* y) override;
  void layernorm_backward(LayerNormShape shape, const Element* x, const float* statistics,
                          const Element* gamma, const Element* dy, const Element* residual,
                          Element* dx, float* dgamma, float* dbeta) override;
  void attention_forward(AttentionShape shape, const Element* qkv, Element* y, float* log_sums,
                         float* scratch) override;
  void attention_backward(AttentionShape shape, const Element* qkv, const Element* y,
                          const float* log_sums, const Element* dy, Element* dqkv,
                          float* scratch) override;
  void gelu_forward(std::size_t count, const Element* x, Element* y) override;
  void gelu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override;
  void relu_forward(std::size_t count, const Element* x, Element* y) override;
  void relu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override;
  void embedding_forward(EmbeddingShape shape, const std::int32_t* tokens,
                         const Element* token_table, const Element* position_table,
                         Element* y) override;
  void embedding_backward(EmbeddingShape shape, const std::int32_t* tokens, const Element* dy,
                          float* dtoken_table, float* dposition_table) override;
  void context_embedding_forward(ContextShape shape, const std::int32_t* tokens,
                                 const Element* table, Element* y) override;
  void context_embedding_backward(ContextShape shape, const std::int32_t* tokens, const Element* dy,
                                  float* dtable) override;
  void softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                    Element* logits, double* loss) override;
  void adamw(const AdamWStep& step, std::size_t count, const float* gradient, float* value,
             float* m, float* v) override;
  void add_exactly(std::size_t count, float* terms, double* sums) override;
  void round_sums(std::size_t count, const double* sums, float* values) override;
  void sum_squares(std::size_t count, const float* values, double* sum) override;
  void round_values(std::size_t count, const float* from, Element* to) override;

 private:
  const Sink sink_;
};

}  // namespace weir::stage::ops
