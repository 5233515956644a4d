// SPDX-License-Identifier: Apache-2.0
// The host's operations on a StrictDevice: each call is put off with its arguments.
#include <memory>
#include <utility>

#include "tests/support/strict_device.h"
#include "worker/stage/builtin_stage.h"

namespace weir::test {
namespace {

using stage::ops::AdamWStep, stage::ops::AttentionShape, stage::ops::ContextShape,
    stage::ops::Element, stage::ops::EmbeddingShape, stage::ops::Kernels,
    stage::ops::LayerNormShape, stage::ops::LinearShape;

class StrictKernels final : public Kernels {
 public:
  StrictKernels(StrictDevice& device, stage::Precision precision)
      : device_(device), host_(stage::ops::make_host_kernels(precision)) {}

  void zero(float* values, std::size_t count) override {
    defer([=](Kernels& host) { host.zero(values, count); });
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    defer([=](Kernels& host) { host.copy(to, from, bytes); });
  }
  void linear_forward(LinearShape shape, const Element* x, const Element* weight,
                      const Element* bias, const Element* residual, Element* y) override {
    defer([=](Kernels& host) { host.linear_forward(shape, x, weight, bias, residual, y); });
  }
  void linear_backward_parameters(LinearShape shape, const Element* x, const Element* dy,
                                  float* dweight, float* dbias) override {
    defer([=](Kernels& host) { host.linear_backward_parameters(shape, x, dy, dweight, dbias); });
  }
  void linear_backward_input(LinearShape shape, const Element* dy, const Element* weight,
                             Element* dx) override {
    defer([=](Kernels& host) { host.linear_backward_input(shape, dy, weight, dx); });
  }
  void layernorm_forward(LayerNormShape shape, const Element* x, const Element* gamma,
                         const Element* beta, Element* y, float* statistics) override {
    defer([=](Kernels& host) { host.layernorm_forward(shape, x, gamma, beta, y, statistics); });
  }
  void layernorm_apply(LayerNormShape shape, const Element* x, const float* statistics,
                       const Element* gamma, const Element* beta, Element* y) override {
    defer([=](Kernels& host) { host.layernorm_apply(shape, x, statistics, gamma, beta, y); });
  }
  void layernorm_backward(LayerNormShape shape, const Element* x, const float* statistics,
                          const Element* gamma, const Element* dy, const Element* residual,
                          Element* dx, float* dgamma, float* dbeta) override {
    defer([=](Kernels& host) {
      host.layernorm_backward(shape, x, statistics, gamma, dy, residual, dx, dgamma, dbeta);
    });
  }
  void attention_forward(AttentionShape shape, const Element* qkv, Element* y, float* log_sums,
                         float* scratch) override {
    defer([=](Kernels& host) { host.attention_forward(shape, qkv, y, log_sums, scratch); });
  }
  void attention_backward(AttentionShape shape, const Element* qkv, const Element* y,
                          const float* log_sums, const Element* dy, Element* dqkv,
                          float* scratch) override {
    defer([=](Kernels& host) {
      host.attention_backward(shape, qkv, y, log_sums, dy, dqkv, scratch);
    });
  }
  void gelu_forward(std::size_t count, const Element* x, Element* y) override {
    defer([=](Kernels& host) { host.gelu_forward(count, x, y); });
  }
  void gelu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override {
    defer([=](Kernels& host) { host.gelu_backward(count, x, dy, dx); });
  }
  void relu_forward(std::size_t count, const Element* x, Element* y) override {
    defer([=](Kernels& host) { host.relu_forward(count, x, y); });
  }
  void relu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override {
    defer([=](Kernels& host) { host.relu_backward(count, x, dy, dx); });
  }
  void embedding_forward(EmbeddingShape shape, const std::int32_t* tokens,
                         const Element* token_table, const Element* position_table,
                         Element* y) override {
    defer([=](Kernels& host) {
      host.embedding_forward(shape, tokens, token_table, position_table, y);
    });
  }
  void embedding_backward(EmbeddingShape shape, const std::int32_t* tokens, const Element* dy,
                          float* dtoken_table, float* dposition_table) override {
    defer([=](Kernels& host) {
      host.embedding_backward(shape, tokens, dy, dtoken_table, dposition_table);
    });
  }
  void context_embedding_forward(ContextShape shape, const std::int32_t* tokens,
                                 const Element* table, Element* y) override {
    defer([=](Kernels& host) { host.context_embedding_forward(shape, tokens, table, y); });
  }
  void context_embedding_backward(ContextShape shape, const std::int32_t* tokens, const Element* dy,
                                  float* dtable) override {
    defer([=](Kernels& host) { host.context_embedding_backward(shape, tokens, dy, dtable); });
  }
  double softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                      Element* logits) override {
    double loss = 0;
    defer([=, &loss](Kernels& host) {
      loss = host.softmax_loss(rows, vocabulary, targets, scale, logits);
    });
    static_cast<void>(device_.synchronize());
    return loss;
  }
  void adamw(const AdamWStep& step, std::size_t count, const float* gradient, float* value,
             float* m, float* v) override {
    defer([=](Kernels& host) { host.adamw(step, count, gradient, value, m, v); });
  }
  void add_exactly(std::size_t count, float* terms, double* sums) override {
    defer([=](Kernels& host) { host.add_exactly(count, terms, sums); });
  }
  void round_sums(std::size_t count, const double* sums, float* values) override {
    defer([=](Kernels& host) { host.round_sums(count, sums, values); });
  }
  void sum_squares(std::size_t count, const float* values, double* sum) override {
    defer([=](Kernels& host) { host.sum_squares(count, values, sum); });
  }
  void round_values(std::size_t count, const float* from, Element* to) override {
    defer([=](Kernels& host) { host.round_values(count, from, to); });
  }

 private:
  // Ops may run when the stage is gone.
  template <class Op>
  void defer(Op op) {
    device_.enqueue([host = host_, op = std::move(op)] { op(*host); });
  }

  StrictDevice& device_;
  const std::shared_ptr<Kernels> host_;
};

}  // namespace

std::unique_ptr<stage::ops::Kernels> make_strict_kernels(StrictDevice& device,
                                                         stage::Precision precision) {
  return std::make_unique<StrictKernels>(device, precision);
}

Result<std::unique_ptr<stage::Stage>> make_strict_stage(const stage::Model& model, int first_layer,
                                                        int last_layer, StrictDevice& device) {
  return stage::make_builtin_stage(model, first_layer, last_layer, device,
                                   make_strict_kernels(device, model.options.precision));
}

}  // namespace weir::test
