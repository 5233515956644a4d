// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/calls.h"

#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

namespace weir::stage::ops {
namespace {

// Shapes have only members of four bytes, so they contain no padding.
template <class T>
bool same_bits(const T& a, const T& b) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
std::string detail(const T&) {
  return {};
}
std::string detail(const LinearShape& shape) {
  return " " + std::to_string(shape.inputs) + "x" + std::to_string(shape.outputs);
}

template <auto kOperation, class... Arguments>
class CallOf final : public Call {
 public:
  CallOf(const char* name, const Arguments&... arguments) : name_(name), arguments_(arguments...) {}

  std::string name() const override { return name_ + detail(std::get<0>(arguments_)); }
  bool same(const Call& other) const override {
    const auto* of_kind = dynamic_cast<const CallOf*>(&other);
    return of_kind != nullptr && same_arguments(*of_kind, std::index_sequence_for<Arguments...>());
  }
  void make(Kernels& kernels) const override {
    std::apply([&](const auto&... each) { (kernels.*kOperation)(each...); }, arguments_);
  }

 private:
  template <std::size_t... kIndex>
  bool same_arguments(const CallOf& other, std::index_sequence<kIndex...>) const {
    return (... && same_bits(std::get<kIndex>(arguments_), std::get<kIndex>(other.arguments_)));
  }

  const char* const name_;
  const std::tuple<Arguments...> arguments_;
};

template <auto kOperation, class... Arguments>
std::unique_ptr<Call> call(const char* name, const Arguments&... arguments) {
  return std::make_unique<CallOf<kOperation, Arguments...>>(name, arguments...);
}

}  // namespace

void CallRecorder::zero(float* values, std::size_t count) {
  sink_(call<&Kernels::zero>("zero", values, count));
}
void CallRecorder::copy(void* to, const void* from, std::size_t bytes) {
  sink_(call<&Kernels::copy>("copy", to, from, bytes));
}
void CallRecorder::linear_forward(LinearShape shape, const Element* x, const Element* weight,
                                  const Element* bias, const Element* residual, Element* y) {
  sink_(call<&Kernels::linear_forward>("linear_forward", shape, x, weight, bias, residual, y));
}
void CallRecorder::linear_backward_parameters(LinearShape shape, const Element* x,
                                              const Element* dy, float* dweight, float* dbias) {
  sink_(call<&Kernels::linear_backward_parameters>("linear_backward_parameters", shape, x, dy,
                                                   dweight, dbias));
}
void CallRecorder::linear_backward_input(LinearShape shape, const Element* dy,
                                         const Element* weight, Element* dx) {
  sink_(call<&Kernels::linear_backward_input>("linear_backward_input", shape, dy, weight, dx));
}
void CallRecorder::layernorm_forward(LayerNormShape shape, const Element* x, const Element* gamma,
                                     const Element* beta, Element* y, float* statistics) {
  sink_(
      call<&Kernels::layernorm_forward>("layernorm_forward", shape, x, gamma, beta, y, statistics));
}
void CallRecorder::layernorm_apply(LayerNormShape shape, const Element* x, const float* statistics,
                                   const Element* gamma, const Element* beta, Element* y) {
  sink_(call<&Kernels::layernorm_apply>("layernorm_apply", shape, x, statistics, gamma, beta, y));
}
void CallRecorder::layernorm_backward(LayerNormShape shape, const Element* x,
                                      const float* statistics, const Element* gamma,
                                      const Element* dy, const Element* residual, Element* dx,
                                      float* dgamma, float* dbeta) {
  sink_(call<&Kernels::layernorm_backward>("layernorm_backward", shape, x, statistics, gamma, dy,
                                           residual, dx, dgamma, dbeta));
}
void CallRecorder::attention_forward(AttentionShape shape, const Element* qkv, Element* y,
                                     float* log_sums, float* scratch) {
  sink_(call<&Kernels::attention_forward>("attention_forward", shape, qkv, y, log_sums, scratch));
}
void CallRecorder::attention_backward(AttentionShape shape, const Element* qkv, const Element* y,
                                      const float* log_sums, const Element* dy, Element* dqkv,
                                      float* scratch) {
  sink_(call<&Kernels::attention_backward>("attention_backward", shape, qkv, y, log_sums, dy, dqkv,
                                           scratch));
}
void CallRecorder::gelu_forward(std::size_t count, const Element* x, Element* y) {
  sink_(call<&Kernels::gelu_forward>("gelu_forward", count, x, y));
}
void CallRecorder::gelu_backward(std::size_t count, const Element* x, const Element* dy,
                                 Element* dx) {
  sink_(call<&Kernels::gelu_backward>("gelu_backward", count, x, dy, dx));
}
void CallRecorder::relu_forward(std::size_t count, const Element* x, Element* y) {
  sink_(call<&Kernels::relu_forward>("relu_forward", count, x, y));
}
void CallRecorder::relu_backward(std::size_t count, const Element* x, const Element* dy,
                                 Element* dx) {
  sink_(call<&Kernels::relu_backward>("relu_backward", count, x, dy, dx));
}
void CallRecorder::embedding_forward(EmbeddingShape shape, const std::int32_t* tokens,
                                     const Element* token_table, const Element* position_table,
                                     Element* y) {
  sink_(call<&Kernels::embedding_forward>("embedding_forward", shape, tokens, token_table,
                                          position_table, y));
}
void CallRecorder::embedding_backward(EmbeddingShape shape, const std::int32_t* tokens,
                                      const Element* dy, float* dtoken_table,
                                      float* dposition_table) {
  sink_(call<&Kernels::embedding_backward>("embedding_backward", shape, tokens, dy, dtoken_table,
                                           dposition_table));
}
void CallRecorder::context_embedding_forward(ContextShape shape, const std::int32_t* tokens,
                                             const Element* table, Element* y) {
  sink_(call<&Kernels::context_embedding_forward>("context_embedding_forward", shape, tokens, table,
                                                  y));
}
void CallRecorder::context_embedding_backward(ContextShape shape, const std::int32_t* tokens,
                                              const Element* dy, float* dtable) {
  sink_(call<&Kernels::context_embedding_backward>("context_embedding_backward", shape, tokens, dy,
                                                   dtable));
}
void CallRecorder::softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                                Element* logits, double* loss) {
  sink_(
      call<&Kernels::softmax_loss>("softmax_loss", rows, vocabulary, targets, scale, logits, loss));
}
void CallRecorder::adamw(const AdamWStep& step, std::size_t count, const float* gradient,
                         float* value, float* m, float* v) {
  sink_(call<&Kernels::adamw>("adamw", step, count, gradient, value, m, v));
}
void CallRecorder::add_exactly(std::size_t count, float* terms, double* sums) {
  sink_(call<&Kernels::add_exactly>("add_exactly", count, terms, sums));
}
void CallRecorder::round_sums(std::size_t count, const double* sums, float* values) {
  sink_(call<&Kernels::round_sums>("round_sums", count, sums, values));
}
void CallRecorder::sum_squares(std::size_t count, const float* values, double* sum) {
  sink_(call<&Kernels::sum_squares>("sum_squares", count, values, sum));
}
void CallRecorder::round_values(std::size_t count, const float* from, Element* to) {
  sink_(call<&Kernels::round_values>("round_values", count, from, to));
}

}  // namespace weir::stage::ops
