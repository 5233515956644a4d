// SPDX-License-Identifier: Apache-2.0
// Every operation of the built-in models, on the device of a stage, in the precision for which the
// kernels were made. Contracts (shapes, += or =) are in the operation's own header. Pointers are
// memory of that device. Activations, their gradients and weights are Elements. Sums over many
// terms are float: gradients of parameters, statistics, logarithms of sums. In bf16 each op
// computes in float and rounds once when it stores. Ops run in the order of the calls. On devices
// other than the host they are only enqueued, and a failure shows at status() or
// Device::synchronize(). Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/stage/ops/adamw.h"
#include "worker/stage/ops/attention.h"
#include "worker/stage/ops/embedding.h"
#include "worker/stage/ops/exact_sum.h"
#include "worker/stage/ops/layernorm.h"
#include "worker/stage/ops/linear.h"
#include "worker/stage/ops/squares.h"
#include "worker/stage/precision.h"

namespace weir::stage::ops {

// One number in the kernels' precision; only the kernels know its type.
struct Element;
template <class T>
T* as(Element* elements) {
  return reinterpret_cast<T*>(elements);
}
template <class T>
const T* as(const Element* elements) {
  return reinterpret_cast<const T*>(elements);
}

// Ops that a device has recorded with their arguments, and enqueues as one.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual Status launch() = 0;  // kInternal: nothing was enqueued
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  virtual void zero(float* values, std::size_t count) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;  // host or device memory

  virtual void linear_forward(LinearShape shape, const Element* x, const Element* weight,
                              const Element* bias, const Element* residual, Element* y) = 0;
  virtual void linear_backward_parameters(LinearShape shape, const Element* x, const Element* dy,
                                          float* dweight, float* dbias) = 0;
  virtual void linear_backward_input(LinearShape shape, const Element* dy, const Element* weight,
                                     Element* dx) = 0;

  virtual void layernorm_forward(LayerNormShape shape, const Element* x, const Element* gamma,
                                 const Element* beta, Element* y, float* statistics) = 0;
  virtual void layernorm_apply(LayerNormShape shape, const Element* x, const float* statistics,
                               const Element* gamma, const Element* beta, Element* y) = 0;
  virtual void layernorm_backward(LayerNormShape shape, const Element* x, const float* statistics,
                                  const Element* gamma, const Element* dy, const Element* residual,
                                  Element* dx, float* dgamma, float* dbeta) = 0;

  virtual void attention_forward(AttentionShape shape, const Element* qkv, Element* y,
                                 float* log_sums, float* scratch) = 0;
  virtual void attention_backward(AttentionShape shape, const Element* qkv, const Element* y,
                                  const float* log_sums, const Element* dy, Element* dqkv,
                                  float* scratch) = 0;

  virtual void gelu_forward(std::size_t count, const Element* x, Element* y) = 0;
  virtual void gelu_backward(std::size_t count, const Element* x, const Element* dy,
                             Element* dx) = 0;
  virtual void relu_forward(std::size_t count, const Element* x, Element* y) = 0;
  virtual void relu_backward(std::size_t count, const Element* x, const Element* dy,
                             Element* dx) = 0;

  virtual void embedding_forward(EmbeddingShape shape, const std::int32_t* tokens,
                                 const Element* token_table, const Element* position_table,
                                 Element* y) = 0;
  virtual void embedding_backward(EmbeddingShape shape, const std::int32_t* tokens,
                                  const Element* dy, float* dtoken_table,
                                  float* dposition_table) = 0;
  virtual void context_embedding_forward(ContextShape shape, const std::int32_t* tokens,
                                         const Element* table, Element* y) = 0;
  virtual void context_embedding_backward(ContextShape shape, const std::int32_t* tokens,
                                          const Element* dy, float* dtable) = 0;

  // loss is the sum over all rows, in staging memory.
  virtual void softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                            Element* logits, double* loss) = 0;
  virtual void adamw(const AdamWStep& step, std::size_t count, const float* gradient, float* value,
                     float* m, float* v) = 0;

  virtual void add_exactly(std::size_t count, float* terms, double* sums) = 0;
  virtual void round_sums(std::size_t count, const double* sums, float* values) = 0;
  virtual void sum_squares(std::size_t count, const float* values, double* sum) = 0;
  // to = from, rounded to the precision.
  virtual void round_values(std::size_t count, const float* from, Element* to) = 0;

  // kInternal if a call could not be enqueued, with its text. The stage checks it after each op.
  virtual Status status() const { return Unit{}; }

  // True if this device can record ops as graphs.
  virtual bool makes_graphs() const { return false; }
  // Calls `ops` without running the kernels that it calls: they become a graph, which the kernels
  // must outlive. All of them must have run before with the same sizes, so that no memory is
  // missing. kInternal: the device refused; ops can be called as before.
  virtual Result<std::unique_ptr<Graph>> make_graph(const std::function<void()>& /*ops*/) {
    return Error{Code::kInternal, "this device makes no graphs"};
  }
};

// The kernels of the device, which must outlive them. kInternal: the device's libraries failed.
Result<std::unique_ptr<Kernels>> make_kernels(device::Device& device, Precision precision);
// In bf16 these kernels are a reference for other devices: each op works on widened copies of its
// operands, in memory that no device counts.
std::unique_ptr<Kernels> make_host_kernels(Precision precision);
Result<std::unique_ptr<Kernels>> make_cuda_kernels(device::Device& device,
                                                   Precision precision);  // WEIR_CUDA only

}  // namespace weir::stage::ops
