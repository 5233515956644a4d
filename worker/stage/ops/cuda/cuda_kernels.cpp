// SPDX-License-Identifier: Apache-2.0
// Kernels as launches on the device's stream. A failed launch or product shows in status().
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker/base/check.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/ops/cuda/gemm.h"
#include "worker/stage/ops/cuda/launch.h"
#include "worker/stage/ops/kernels.h"

namespace weir::stage::ops {
namespace {

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaGraphExec_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  Status launch() override {
    const cudaError_t error = cudaGraphLaunch(graph_, stream_);
    if (error == cudaSuccess) return Unit{};
    return Error{Code::kInternal, std::string("CUDA: a graph: ") + cudaGetErrorString(error)};
  }

 private:
  const cudaGraphExec_t graph_;
  const cudaStream_t stream_;
};

// T is the type of an Element.
template <class T>
class CudaKernels final : public Kernels {
 public:
  CudaKernels(device::CudaDevice& device, std::unique_ptr<cuda::Gemm> gemm)
      : device_(device), stream_(device.stream()), gemm_(std::move(gemm)) {}

  void zero(float* values, std::size_t count) override {
    cudaMemsetAsync(values, 0, count * sizeof(float), stream_);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_);
  }

  // Row-major (R,O) is column-major (O,R): y^T = w x^T, with w stored as (O,I) = column-major
  // (I,O).
  void linear_forward(LinearShape s, const Element* x, const Element* weight, const Element* bias,
                      const Element* residual, Element* y) override {
    gemm_->run({.m = s.outputs,
                .n = s.rows,
                .k = s.inputs,
                .transpose_a = true,
                .transpose_b = false,
                .lda = s.inputs,
                .ldb = s.inputs,
                .ldd = s.outputs,
                .beta = residual != nullptr ? 1.0F : 0.0F,
                .adds_bias = bias != nullptr,
                .inputs = kPrecision,
                .output = kPrecision},
               {.a = weight, .b = x, .c = residual, .bias = bias, .d = y});
  }
  void linear_backward_parameters(LinearShape s, const Element* x, const Element* dy,
                                  float* dweight, float* dbias) override {
    gemm_->run({.m = s.inputs,
                .n = s.outputs,
                .k = s.rows,
                .transpose_a = false,
                .transpose_b = true,
                .lda = s.inputs,
                .ldb = s.outputs,
                .ldd = s.inputs,
                .beta = 1,
                .adds_bias = false,
                .inputs = kPrecision,
                .output = Precision::kFp32},
               {.a = x, .b = dy, .c = dweight, .bias = nullptr, .d = dweight});
    if (dbias == nullptr) return;
    auto* slices = scratch<float>(cuda::column_sum_floats(s.rows, s.outputs));
    if (slices == nullptr) return;
    cuda::add_column_sums(stream_, s.rows, s.outputs, as<T>(dy), slices, dbias);
  }
  void linear_backward_input(LinearShape s, const Element* dy, const Element* weight,
                             Element* dx) override {
    gemm_->run({.m = s.inputs,
                .n = s.rows,
                .k = s.outputs,
                .transpose_a = false,
                .transpose_b = false,
                .lda = s.inputs,
                .ldb = s.outputs,
                .ldd = s.inputs,
                .beta = 0,
                .adds_bias = false,
                .inputs = kPrecision,
                .output = kPrecision},
               {.a = weight, .b = dy, .c = nullptr, .bias = nullptr, .d = dx});
  }

  void layernorm_forward(LayerNormShape shape, const Element* x, const Element* gamma,
                         const Element* beta, Element* y, float* statistics) override {
    cuda::layernorm_forward(stream_, shape, as<T>(x), as<T>(gamma), as<T>(beta), as<T>(y),
                            statistics);
  }
  void layernorm_apply(LayerNormShape shape, const Element* x, const float* statistics,
                       const Element* gamma, const Element* beta, Element* y) override {
    cuda::layernorm_apply(stream_, shape, as<T>(x), statistics, as<T>(gamma), as<T>(beta),
                          as<T>(y));
  }
  void layernorm_backward(LayerNormShape shape, const Element* x, const float* statistics,
                          const Element* gamma, const Element* dy, const Element* residual,
                          Element* dx, float* dgamma, float* dbeta) override {
    auto* slices = scratch<float>(2 * cuda::column_sum_floats(shape.rows, shape.channels));
    if (slices == nullptr) return;
    cuda::layernorm_backward(stream_, shape, as<T>(x), statistics, as<T>(gamma), as<T>(dy),
                             as<T>(residual), as<T>(dx), slices, dgamma, dbeta);
  }

  void attention_forward(AttentionShape shape, const Element* qkv, Element* y, float* log_sums,
                         float*) override {
    cuda::attention_forward(stream_, shape, as<T>(qkv), as<T>(y), log_sums);
  }
  void attention_backward(AttentionShape shape, const Element* qkv, const Element* y,
                          const float* log_sums, const Element* dy, Element* dqkv,
                          float*) override {
    auto* row_dots = scratch<float>(static_cast<std::size_t>(shape.samples) *
                                    static_cast<std::size_t>(shape.heads) *
                                    static_cast<std::size_t>(shape.sequence));
    if (row_dots == nullptr) return;
    cuda::attention_backward(stream_, shape, as<T>(qkv), as<T>(y), log_sums, as<T>(dy), as<T>(dqkv),
                             row_dots);
  }

  void gelu_forward(std::size_t count, const Element* x, Element* y) override {
    cuda::gelu_forward(stream_, count, as<T>(x), as<T>(y));
  }
  void gelu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override {
    cuda::gelu_backward(stream_, count, as<T>(x), as<T>(dy), as<T>(dx));
  }
  void relu_forward(std::size_t count, const Element* x, Element* y) override {
    cuda::relu_forward(stream_, count, as<T>(x), as<T>(y));
  }
  void relu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override {
    cuda::relu_backward(stream_, count, as<T>(x), as<T>(dy), as<T>(dx));
  }

  void embedding_forward(EmbeddingShape shape, const std::int32_t* tokens,
                         const Element* token_table, const Element* position_table,
                         Element* y) override {
    cuda::embedding_forward(stream_, shape, tokens, as<T>(token_table), as<T>(position_table),
                            as<T>(y));
  }
  void embedding_backward(EmbeddingShape shape, const std::int32_t* tokens, const Element* dy,
                          float* dtoken_table, float* dposition_table) override {
    cuda::embedding_backward(stream_, shape, tokens, as<T>(dy), dtoken_table, dposition_table);
  }
  void context_embedding_forward(ContextShape shape, const std::int32_t* tokens,
                                 const Element* table, Element* y) override {
    cuda::context_embedding_forward(stream_, shape, tokens, as<T>(table), as<T>(y));
  }
  void context_embedding_backward(ContextShape shape, const std::int32_t* tokens, const Element* dy,
                                  float* dtable) override {
    cuda::context_embedding_backward(stream_, shape, tokens, as<T>(dy), dtable);
  }

  void softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                    Element* logits, double* loss) override {
    auto* losses = scratch<double>(static_cast<std::size_t>(rows) + 1);
    if (losses == nullptr) return;
    double* total = losses + rows;
    cuda::softmax_loss(stream_, rows, vocabulary, targets, scale, as<T>(logits), losses, total);
    cudaMemcpyAsync(loss, total, sizeof *loss, cudaMemcpyDeviceToHost, stream_);
  }
  void adamw(const AdamWStep& step, std::size_t count, const float* gradient, float* value,
             float* m, float* v) override {
    cuda::adamw(stream_, step, count, gradient, value, m, v);
  }

  void add_exactly(std::size_t count, float* terms, double* sums) override {
    cuda::add_exactly(stream_, count, terms, sums);
  }
  void round_sums(std::size_t count, const double* sums, float* values) override {
    cuda::round_sums(stream_, count, sums, values);
  }
  void sum_squares(std::size_t count, const float* values, double* sum) override {
    auto* chunks = scratch<double>(cuda::squares_doubles(count));
    if (chunks != nullptr) cuda::sum_squares(stream_, count, values, chunks, sum);
  }

  void round_values(std::size_t count, const float* from, Element* to) override {
    cuda::round_values(stream_, count, from, as<T>(to));
  }

  Status status() const override {
    if (!gemm_->failure().empty()) return Error{Code::kInternal, gemm_->failure()};
    if (out_of_memory_) {
      return Error{Code::kInternal, "device " + device_.name() + " has no memory left for scratch"};
    }
    const cudaError_t error = cudaPeekAtLastError();
    if (error == cudaSuccess) return Unit{};
    return Error{Code::kInternal, std::string("CUDA: ") + cudaGetErrorString(error)};
  }

  bool makes_graphs() const override { return true; }
  Result<std::unique_ptr<Graph>> make_graph(const std::function<void()>& ops) override {
    // Other threads continue to use their streams meanwhile.
    cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    cudaGraph_t taken = nullptr;
    cudaGraphExec_t graph = nullptr;
    if (error == cudaSuccess) {
      capturing_ = true;
      ops();
      capturing_ = false;
      error = cudaStreamEndCapture(stream_, &taken);
    }
    const Status called = status();
    if (error == cudaSuccess && called) error = cudaGraphInstantiate(&graph, taken, 0);
    if (taken != nullptr) cudaGraphDestroy(taken);
    if (error == cudaSuccess && called) {
      has_graphs_ = true;
      return std::unique_ptr<Graph>(std::make_unique<CudaGraph>(graph, stream_));
    }
    // None of these ops has run, so their failures do not concern later ops without a graph.
    gemm_->forget_failure();
    out_of_memory_ = false;
    cudaGetLastError();
    if (!called) return called.error();
    return Error{Code::kInternal,
                 std::string("CUDA: making a graph: ") + cudaGetErrorString(error)};
  }

 private:
  static constexpr Precision kPrecision =
      std::is_same_v<T, Bf16> ? Precision::kBf16 : Precision::kFp32;

  // Grows as needed. All ops share the stream, so there is one user at a time. Memory to which
  // graphs write is kept.
  template <class Value>
  Value* scratch(std::size_t count) {
    const std::size_t bytes = count * sizeof(Value);
    if (scratch_.size() < bytes && !capturing_) {
      if (has_graphs_ && scratch_) outgrown_.push_back(std::move(scratch_));
      scratch_ = device_.allocate(bytes);
    }
    if (scratch_.size() >= bytes && scratch_) return scratch_.as<Value>();
    out_of_memory_ = true;
    return nullptr;
  }

  device::CudaDevice& device_;
  const cudaStream_t stream_;
  const std::unique_ptr<cuda::Gemm> gemm_;
  device::Buffer scratch_;
  std::vector<device::Buffer> outgrown_;
  bool out_of_memory_ = false, capturing_ = false, has_graphs_ = false;
};

}  // namespace

Result<std::unique_ptr<Kernels>> make_cuda_kernels(device::Device& device, Precision precision) {
  auto* cuda_device = dynamic_cast<device::CudaDevice*>(&device);
  WEIR_CHECK(cuda_device != nullptr, "CUDA kernels run on a CUDA device");
  WEIR_TRY(std::unique_ptr<cuda::Gemm> gemm, cuda::Gemm::make(*cuda_device));
  if (precision == Precision::kBf16) {
    return std::unique_ptr<Kernels>(
        std::make_unique<CudaKernels<Bf16>>(*cuda_device, std::move(gemm)));
  }
  return std::unique_ptr<Kernels>(
      std::make_unique<CudaKernels<float>>(*cuda_device, std::move(gemm)));
}

}  // namespace weir::stage::ops
