// SPDX-License-Identifier: Apache-2.0
// The host's kernels, and the choice of kernels by device.
#include "worker/stage/ops/kernels.h"

#include <algorithm>
#include <cstring>

#include "worker/stage/ops/gelu.h"
#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/relu.h"
#include "worker/stage/ops/softmax_loss.h"

namespace weir::stage::ops {
namespace {

std::size_t product(int a, int b, int c = 1) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
}

// T is the type of an Element.
template <class T>
class HostKernels final : public Kernels {
 public:
  void zero(float* values, std::size_t count) override { std::fill_n(values, count, 0.0F); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void linear_forward(LinearShape s, const Element* x, const Element* weight, const Element* bias,
                      const Element* residual, Element* y) override {
    const std::size_t outputs = product(s.rows, s.outputs);
    ops::linear_forward(
        s, In<T>(x, product(s.rows, s.inputs)), In<T>(weight, product(s.outputs, s.inputs)),
        In<T>(bias, product(s.outputs, 1)), In<T>(residual, outputs), Out<T>(y, outputs));
  }
  void linear_backward_parameters(LinearShape s, const Element* x, const Element* dy,
                                  float* dweight, float* dbias) override {
    ops::linear_backward_parameters(s, In<T>(x, product(s.rows, s.inputs)),
                                    In<T>(dy, product(s.rows, s.outputs)), dweight, dbias);
  }
  void linear_backward_input(LinearShape s, const Element* dy, const Element* weight,
                             Element* dx) override {
    ops::linear_backward_input(s, In<T>(dy, product(s.rows, s.outputs)),
                               In<T>(weight, product(s.outputs, s.inputs)),
                               Out<T>(dx, product(s.rows, s.inputs)));
  }
  void layernorm_forward(LayerNormShape s, const Element* x, const Element* gamma,
                         const Element* beta, Element* y, float* statistics) override {
    const std::size_t count = product(s.rows, s.channels), row = product(s.channels, 1);
    ops::layernorm_forward(s, In<T>(x, count), In<T>(gamma, row), In<T>(beta, row),
                           Out<T>(y, count), statistics);
  }
  void layernorm_apply(LayerNormShape s, const Element* x, const float* statistics,
                       const Element* gamma, const Element* beta, Element* y) override {
    const std::size_t count = product(s.rows, s.channels), row = product(s.channels, 1);
    ops::layernorm_apply(s, In<T>(x, count), statistics, In<T>(gamma, row), In<T>(beta, row),
                         Out<T>(y, count));
  }
  void layernorm_backward(LayerNormShape s, const Element* x, const float* statistics,
                          const Element* gamma, const Element* dy, const Element* residual,
                          Element* dx, float* dgamma, float* dbeta) override {
    const std::size_t count = product(s.rows, s.channels);
    ops::layernorm_backward(s, In<T>(x, count), statistics, In<T>(gamma, product(s.channels, 1)),
                            In<T>(dy, count), In<T>(residual, count), Out<T>(dx, count), dgamma,
                            dbeta);
  }
  void attention_forward(AttentionShape s, const Element* qkv, Element* y, float* log_sums,
                         float* scratch) override {
    const std::size_t count = product(s.samples, s.sequence, s.channels);
    ops::attention_forward(s, In<T>(qkv, 3 * count), Out<T>(y, count), log_sums, scratch);
  }
  void attention_backward(AttentionShape s, const Element* qkv, const Element* y,
                          const float* log_sums, const Element* dy, Element* dqkv,
                          float* scratch) override {
    const std::size_t count = product(s.samples, s.sequence, s.channels);
    ops::attention_backward(s, In<T>(qkv, 3 * count), In<T>(y, count), log_sums, In<T>(dy, count),
                            Out<T>(dqkv, 3 * count), scratch);
  }
  void gelu_forward(std::size_t count, const Element* x, Element* y) override {
    ops::gelu_forward(count, In<T>(x, count), Out<T>(y, count));
  }
  void gelu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override {
    ops::gelu_backward(count, In<T>(x, count), In<T>(dy, count), Out<T>(dx, count));
  }
  void relu_forward(std::size_t count, const Element* x, Element* y) override {
    ops::relu_forward(count, In<T>(x, count), Out<T>(y, count));
  }
  void relu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override {
    ops::relu_backward(count, In<T>(x, count), In<T>(dy, count), Out<T>(dx, count));
  }
  void embedding_forward(EmbeddingShape s, const std::int32_t* tokens, const Element* token_table,
                         const Element* position_table, Element* y) override {
    ops::embedding_forward(s, tokens, as<T>(token_table), as<T>(position_table), as<T>(y));
  }
  void embedding_backward(EmbeddingShape s, const std::int32_t* tokens, const Element* dy,
                          float* dtoken_table, float* dposition_table) override {
    ops::embedding_backward(s, tokens, In<T>(dy, product(s.samples, s.sequence, s.channels)),
                            dtoken_table, dposition_table);
  }
  void context_embedding_forward(ContextShape s, const std::int32_t* tokens, const Element* table,
                                 Element* y) override {
    ops::context_embedding_forward(s, tokens, as<T>(table), as<T>(y));
  }
  void context_embedding_backward(ContextShape s, const std::int32_t* tokens, const Element* dy,
                                  float* dtable) override {
    const std::size_t places = product(s.samples, s.sequence, s.context);
    ops::context_embedding_backward(
        s, tokens, In<T>(dy, places * static_cast<std::size_t>(s.channels)), dtable);
  }
  void softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                    Element* logits, double* loss) override {
    *loss = ops::softmax_loss(rows, vocabulary, targets, scale,
                              InOut<T>(logits, product(rows, vocabulary)));
  }
  void add_exactly(std::size_t count, float* terms, double* sums) override {
    ops::add_exactly(count, terms, sums);
  }
  void round_sums(std::size_t count, const double* sums, float* values) override {
    ops::round_sums(count, sums, values);
  }
  void sum_squares(std::size_t count, const float* values, double* sum) override {
    *sum = ops::sum_squares(count, values);
  }
  void round_values(std::size_t count, const float* from, Element* to) override {
    std::copy_n(from, count, static_cast<float*>(Out<T>(to, count)));
  }
  void adamw(const AdamWStep& step, std::size_t count, const float* gradient, float* value,
             float* m, float* v) override {
    ops::adamw(step, count, gradient, value, m, v);
  }
};

}  // namespace

std::unique_ptr<Kernels> make_host_kernels(Precision precision) {
  if (precision == Precision::kBf16) return std::make_unique<HostKernels<Bf16>>();
  return std::make_unique<HostKernels<float>>();
}

Result<std::unique_ptr<Kernels>> make_kernels(device::Device& device, Precision precision) {
  if (device.is_host()) return make_host_kernels(precision);
#ifdef WEIR_CUDA
  return make_cuda_kernels(device, precision);
#else
  return Error{Code::kInternal,
               "device " + device.name() + ": this build has no operations for it"};
#endif
}

}  // namespace weir::stage::ops
