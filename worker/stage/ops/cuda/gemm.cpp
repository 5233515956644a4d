// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/cuda/gemm.h"

#include <cublasLt.h>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace weir::stage::ops::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

// Descriptors of one shape with the algorithm chosen for it.
class Plan {
 public:
  explicit Plan(const Product& p) {
    cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set_transpose(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a);
    set_transpose(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b);
    layout(&a_, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda);
    layout(&b_, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb);
    layout(&c_, p.m, p.n, p.ldc);
  }
  ~Plan() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(c_);
    cublasLtMatmulDescDestroy(operation_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  cublasStatus_t choose(cublasLtHandle_t handle) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    const std::size_t workspace = kWorkspaceBytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, operation_, a_, b_, c_, c_,
                                                                 preference, 1, &chosen_, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    return status == CUBLAS_STATUS_SUCCESS && found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
  }
  cublasStatus_t run(cublasLtHandle_t handle, float beta, const float* a, const float* b, float* c,
                     void* workspace, cudaStream_t stream) const {
    const float alpha = 1;
    return cublasLtMatmul(handle, operation_, &alpha, a, a_, b, b_, &beta, c, c_, c, c_,
                          &chosen_.algo, workspace, kWorkspaceBytes, stream);
  }

 private:
  void set_transpose(cublasLtMatmulDescAttributes_t which, bool transpose) {
    const cublasOperation_t value = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDescSetAttribute(operation_, which, &value, sizeof value);
  }
  static void layout(cublasLtMatrixLayout_t* made, int rows, int columns, int leading) {
    cublasLtMatrixLayoutCreate(made, CUDA_R_32F, static_cast<std::uint64_t>(rows),
                               static_cast<std::uint64_t>(columns), leading);
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

class LtGemm final : public Gemm {
 public:
  LtGemm(cublasLtHandle_t handle, device::Buffer workspace, cudaStream_t stream)
      : handle_(handle), workspace_(std::move(workspace)), stream_(stream) {}
  ~LtGemm() override {
    plans_.clear();
    cublasLtDestroy(handle_);
  }
  LtGemm(const LtGemm&) = delete;
  LtGemm& operator=(const LtGemm&) = delete;

  void run(const Product& product, const float* a, const float* b, float* c) override {
    if (!failure_.empty()) return;
    auto found = plans_.find(product);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (found == plans_.end()) {
      found = plans_.emplace(product, std::make_unique<Plan>(product)).first;
      status = found->second->choose(handle_);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = found->second->run(handle_, product.beta, a, b, c, workspace_.data(), stream_);
    }
    if (status == CUBLAS_STATUS_SUCCESS) return;
    failure_ = "cuBLASLt: " + std::string(cublasLtGetStatusString(status)) + " for a product " +
               std::to_string(product.m) + " x " + std::to_string(product.n) + " x " +
               std::to_string(product.k);
  }
  const std::string& failure() const override { return failure_; }

 private:
  const cublasLtHandle_t handle_;
  const device::Buffer workspace_;
  const cudaStream_t stream_;
  std::map<Product, std::unique_ptr<Plan>> plans_;
  std::string failure_;
};

}  // namespace

bool Product::operator<(const Product& other) const {
  const auto key = [](const Product& p) {
    return std::tuple(p.m, p.n, p.k, p.transpose_a, p.transpose_b, p.lda, p.ldb, p.ldc, p.beta);
  };
  return key(*this) < key(other);
}

Result<std::unique_ptr<Gemm>> Gemm::make(device::CudaDevice& device) {
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = cublasLtCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return Error{Code::kInternal, std::string("cuBLASLt: ") + cublasLtGetStatusString(status)};
  }
  device::Buffer workspace = device.allocate(kWorkspaceBytes);
  if (!workspace) {
    cublasLtDestroy(handle);
    return Error{Code::kInternal, "no device memory for cuBLASLt's workspace"};
  }
  return std::unique_ptr<Gemm>(
      std::make_unique<LtGemm>(handle, std::move(workspace), device.stream()));
}

}  // namespace weir::stage::ops::cuda
