// SPDX-License-Identifier: Apache-2.0
// The seam's calls as launches on the device's stream. A failed launch or product shows in
// status().
#include <limits>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/ops/cuda/gemm.h"
#include "worker/stage/ops/cuda/launch.h"
#include "worker/stage/ops/kernels.h"

namespace weir::stage::ops {
namespace {

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

  // Row-major (R,O) is column-major (O,R): y^T = w x^T, with w stored (O,I) = column-major (I,O).
  void linear_forward(LinearShape s, const float* x, const float* weight, const float* bias,
                      const float* residual, float* y) override {
    const bool fill = bias != nullptr || residual != nullptr;
    if (fill) cuda::fill_rows(stream_, s.rows, s.outputs, bias, residual, y);
    gemm_->run({s.outputs, s.rows, s.inputs, true, false, s.inputs, s.inputs, s.outputs,
                fill ? 1.0F : 0.0F},
               weight, x, y);
  }
  void linear_backward_parameters(LinearShape s, const float* x, const float* dy, float* dweight,
                                  float* dbias) override {
    gemm_->run({s.inputs, s.outputs, s.rows, false, true, s.inputs, s.outputs, s.inputs, 1.0F}, x,
               dy, dweight);
    if (dbias != nullptr) cuda::add_column_sums(stream_, s.rows, s.outputs, dy, dbias);
  }
  void linear_backward_input(LinearShape s, const float* dy, const float* weight,
                             float* dx) override {
    gemm_->run({s.inputs, s.rows, s.outputs, false, false, s.inputs, s.outputs, s.inputs, 0.0F},
               weight, dy, dx);
  }

  void layernorm_forward(LayerNormShape shape, const float* x, const float* gamma,
                         const float* beta, float* y, float* statistics) override {
    cuda::layernorm_forward(stream_, shape, x, gamma, beta, y, statistics);
  }
  void layernorm_apply(LayerNormShape shape, const float* x, const float* statistics,
                       const float* gamma, const float* beta, float* y) override {
    cuda::layernorm_apply(stream_, shape, x, statistics, gamma, beta, y);
  }
  void layernorm_backward(LayerNormShape shape, const float* x, const float* statistics,
                          const float* gamma, const float* dy, const float* residual, float* dx,
                          float* dgamma, float* dbeta) override {
    cuda::layernorm_backward(stream_, shape, x, statistics, gamma, dy, residual, dx, dgamma, dbeta);
  }

  void attention_forward(AttentionShape shape, const float* qkv, float* y, float* log_sums,
                         float*) override {
    cuda::attention_forward(stream_, shape, qkv, y, log_sums);
  }
  void attention_backward(AttentionShape shape, const float* qkv, const float* y,
                          const float* log_sums, const float* dy, float* dqkv, float*) override {
    auto* row_dots = static_cast<float*>(
        scratch(static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.heads) *
                static_cast<std::size_t>(shape.sequence) * sizeof(float)));
    if (row_dots == nullptr) return;
    cuda::attention_backward(stream_, shape, qkv, y, log_sums, dy, dqkv, row_dots);
  }

  void gelu_forward(std::size_t count, const float* x, float* y) override {
    cuda::gelu_forward(stream_, count, x, y);
  }
  void gelu_backward(std::size_t count, const float* x, const float* dy, float* dx) override {
    cuda::gelu_backward(stream_, count, x, dy, dx);
  }
  void relu_forward(std::size_t count, const float* x, float* y) override {
    cuda::relu_forward(stream_, count, x, y);
  }
  void relu_backward(std::size_t count, const float* x, const float* dy, float* dx) override {
    cuda::relu_backward(stream_, count, x, dy, dx);
  }

  void embedding_forward(EmbeddingShape shape, const std::int32_t* tokens, const float* token_table,
                         const float* position_table, float* y) override {
    cuda::embedding_forward(stream_, shape, tokens, token_table, position_table, y);
  }
  void embedding_backward(EmbeddingShape shape, const std::int32_t* tokens, const float* dy,
                          float* dtoken_table, float* dposition_table) override {
    cuda::embedding_backward(stream_, shape, tokens, dy, dtoken_table, dposition_table);
  }
  void context_embedding_forward(ContextShape shape, const std::int32_t* tokens, const float* table,
                                 float* y) override {
    cuda::context_embedding_forward(stream_, shape, tokens, table, y);
  }
  void context_embedding_backward(ContextShape shape, const std::int32_t* tokens, const float* dy,
                                  float* dtable) override {
    cuda::context_embedding_backward(stream_, shape, tokens, dy, dtable);
  }

  double softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                      float* logits) override {
    constexpr double kFailed = std::numeric_limits<double>::quiet_NaN();
    auto* losses =
        static_cast<double*>(scratch((static_cast<std::size_t>(rows) + 1) * sizeof(double)));
    if (losses == nullptr) return kFailed;
    double* total = losses + rows;
    cuda::softmax_loss(stream_, rows, vocabulary, targets, scale, logits, losses, total);
    double result = kFailed;
    cudaMemcpyAsync(&result, total, sizeof result, cudaMemcpyDeviceToHost, stream_);
    return device_.synchronize() && gemm_->failure().empty() ? result : kFailed;
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

  Status status() const override {
    if (!gemm_->failure().empty()) return Error{Code::kInternal, gemm_->failure()};
    if (out_of_memory_) {
      return Error{Code::kInternal, "device " + device_.name() + " has no memory left for scratch"};
    }
    const cudaError_t error = cudaPeekAtLastError();
    if (error == cudaSuccess) return Unit{};
    return Error{Code::kInternal, std::string("CUDA: ") + cudaGetErrorString(error)};
  }

 private:
  // Grows as needed; one user at a time, because all ops share the stream.
  void* scratch(std::size_t bytes) {
    if (scratch_.size() < bytes) scratch_ = device_.allocate(bytes);
    out_of_memory_ = out_of_memory_ || !scratch_;
    return scratch_.data();
  }

  device::CudaDevice& device_;
  const cudaStream_t stream_;
  const std::unique_ptr<cuda::Gemm> gemm_;
  device::Buffer scratch_;
  bool out_of_memory_ = false;
};

}  // namespace

Result<std::unique_ptr<Kernels>> make_cuda_kernels(device::Device& device) {
  auto* cuda_device = dynamic_cast<device::CudaDevice*>(&device);
  WEIR_CHECK(cuda_device != nullptr, "CUDA kernels run on a CUDA device");
  WEIR_TRY(std::unique_ptr<cuda::Gemm> gemm, cuda::Gemm::make(*cuda_device));
  return std::unique_ptr<Kernels>(std::make_unique<CudaKernels>(*cuda_device, std::move(gemm)));
}

}  // namespace weir::stage::ops
