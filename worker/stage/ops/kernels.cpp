// SPDX-License-Identifier: Apache-2.0
// The host's operations behind the seam, and the choice by device.
#include "worker/stage/ops/kernels.h"

#include <algorithm>
#include <cstring>

#include "worker/stage/ops/gelu.h"
#include "worker/stage/ops/relu.h"
#include "worker/stage/ops/softmax_loss.h"

namespace weir::stage::ops {
namespace {

class HostKernels final : public Kernels {
 public:
  void zero(float* values, std::size_t count) override { std::fill_n(values, count, 0.0F); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void linear_forward(LinearShape shape, const float* x, const float* weight, const float* bias,
                      const float* residual, float* y) override {
    ops::linear_forward(shape, x, weight, bias, residual, y);
  }
  void linear_backward_parameters(LinearShape shape, const float* x, const float* dy,
                                  float* dweight, float* dbias) override {
    ops::linear_backward_parameters(shape, x, dy, dweight, dbias);
  }
  void linear_backward_input(LinearShape shape, const float* dy, const float* weight,
                             float* dx) override {
    ops::linear_backward_input(shape, dy, weight, dx);
  }
  void layernorm_forward(LayerNormShape shape, const float* x, const float* gamma,
                         const float* beta, float* y, float* statistics) override {
    ops::layernorm_forward(shape, x, gamma, beta, y, statistics);
  }
  void layernorm_apply(LayerNormShape shape, const float* x, const float* statistics,
                       const float* gamma, const float* beta, float* y) override {
    ops::layernorm_apply(shape, x, statistics, gamma, beta, y);
  }
  void layernorm_backward(LayerNormShape shape, const float* x, const float* statistics,
                          const float* gamma, const float* dy, const float* residual, float* dx,
                          float* dgamma, float* dbeta) override {
    ops::layernorm_backward(shape, x, statistics, gamma, dy, residual, dx, dgamma, dbeta);
  }
  void attention_forward(AttentionShape shape, const float* qkv, float* y, float* log_sums,
                         float* scratch) override {
    ops::attention_forward(shape, qkv, y, log_sums, scratch);
  }
  void attention_backward(AttentionShape shape, const float* qkv, const float* y,
                          const float* log_sums, const float* dy, float* dqkv,
                          float* scratch) override {
    ops::attention_backward(shape, qkv, y, log_sums, dy, dqkv, scratch);
  }
  void gelu_forward(std::size_t count, const float* x, float* y) override {
    ops::gelu_forward(count, x, y);
  }
  void gelu_backward(std::size_t count, const float* x, const float* dy, float* dx) override {
    ops::gelu_backward(count, x, dy, dx);
  }
  void relu_forward(std::size_t count, const float* x, float* y) override {
    ops::relu_forward(count, x, y);
  }
  void relu_backward(std::size_t count, const float* x, const float* dy, float* dx) override {
    ops::relu_backward(count, x, dy, dx);
  }
  void embedding_forward(EmbeddingShape shape, const std::int32_t* tokens, const float* token_table,
                         const float* position_table, float* y) override {
    ops::embedding_forward(shape, tokens, token_table, position_table, y);
  }
  void embedding_backward(EmbeddingShape shape, const std::int32_t* tokens, const float* dy,
                          float* dtoken_table, float* dposition_table) override {
    ops::embedding_backward(shape, tokens, dy, dtoken_table, dposition_table);
  }
  void context_embedding_forward(ContextShape shape, const std::int32_t* tokens, const float* table,
                                 float* y) override {
    ops::context_embedding_forward(shape, tokens, table, y);
  }
  void context_embedding_backward(ContextShape shape, const std::int32_t* tokens, const float* dy,
                                  float* dtable) override {
    ops::context_embedding_backward(shape, tokens, dy, dtable);
  }
  double softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                      float* logits) override {
    return ops::softmax_loss(rows, vocabulary, targets, scale, logits);
  }
  void add_exactly(std::size_t count, float* terms, double* sums) override {
    ops::add_exactly(count, terms, sums);
  }
  void round_sums(std::size_t count, const double* sums, float* values) override {
    ops::round_sums(count, sums, values);
  }
  void adamw(const AdamWStep& step, std::size_t count, const float* gradient, float* value,
             float* m, float* v) override {
    ops::adamw(step, count, gradient, value, m, v);
  }
};

}  // namespace

std::unique_ptr<Kernels> make_host_kernels() {
  return std::make_unique<HostKernels>();
}

Result<std::unique_ptr<Kernels>> make_kernels(device::Device& device) {
  if (device.is_host()) return make_host_kernels();
#ifdef WEIR_CUDA
  return make_cuda_kernels(device);
#else
  return Error{Code::kInternal,
               "device " + device.name() + ": this build has no operations for it"};
#endif
}

}  // namespace weir::stage::ops
