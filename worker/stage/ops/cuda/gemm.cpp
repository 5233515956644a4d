// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/cuda/gemm.h"

#include <array>
#include <cublasLt.h>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/base/log.h"
#include "worker/stage/ops/cuda/plain_product.h"

namespace weir::stage::ops {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kCandidates = 8;

cudaDataType_t type_of(Precision precision) {
  return precision == Precision::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Common alignment of all operands up to 16 bytes, the size of vector loads. It decides which
// algorithms may run.
std::uint32_t alignment_of(const Operands& operands) {
  constexpr std::uintptr_t kWidest = 16;
  std::uintptr_t bits = kWidest;
  for (const void* one :
       {operands.a, operands.b, operands.c, operands.bias, static_cast<const void*>(operands.d)}) {
    bits |= reinterpret_cast<std::uintptr_t>(one);
  }
  return static_cast<std::uint32_t>(bits & -bits);  // the lowest bit set
}

// Descriptors of one shape with the algorithm chosen for it.
class Plan {
 public:
  Plan(const Product& p, bool adds_bias) {
    cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE,
        adds_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
    layout(&a_, p.inputs, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k);
    layout(&b_, p.inputs, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
    layout(&d_, p.output, p.m, p.n);
  }
  ~Plan() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(d_);
    cublasLtMatmulDescDestroy(operation_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  cublasStatus_t choose(cublasLtHandle_t handle, std::uint32_t alignment) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    const std::size_t workspace = kWorkspaceBytes;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
    // Partial sums of split-K stay in the type of the computation. The other schemes add them up in
    // the type of D, which rounds several times and in an order that may change from run to run.
    const auto reductions = static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                         &reductions, sizeof reductions);
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      cublasLtMatmulPreferenceSetAttribute(preference, which, &alignment, sizeof alignment);
    }
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, operation_, a_, b_, d_, d_, preference, kCandidates, found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    for (int i = 0; i < count; ++i) {
      const auto& candidate = found[static_cast<std::size_t>(i)];
      if (candidate.state == CUBLAS_STATUS_SUCCESS) candidates_.push_back(candidate.algo);
    }
    return candidates_.empty() ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  }
  void set_bias(const void* bias) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }
  // With the best candidate that runs at all; those before it are dropped.
  cublasStatus_t run(cublasLtHandle_t handle, const Operands& o, void* workspace,
                     cudaStream_t stream) {
    const float alpha = 1, beta = o.c == nullptr ? 0 : 1;
    const void* c = o.c == nullptr ? o.d : o.c;
    for (;;) {
      const cublasStatus_t status =
          cublasLtMatmul(handle, operation_, &alpha, o.a, a_, o.b, b_, &beta, c, d_, o.d, d_,
                         &candidates_.front(), workspace, kWorkspaceBytes, stream);
      if (status == CUBLAS_STATUS_SUCCESS || candidates_.size() == 1) return status;
      candidates_.erase(candidates_.begin());
    }
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t which, Value value) {
    cublasLtMatmulDescSetAttribute(operation_, which, &value, sizeof value);
  }
  static void layout(cublasLtMatrixLayout_t* made, Precision precision, int rows, int columns) {
    cublasLtMatrixLayoutCreate(made, type_of(precision), static_cast<std::uint64_t>(rows),
                               static_cast<std::uint64_t>(columns), rows);
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  std::vector<cublasLtMatmulAlgo_t> candidates_;  // best first; never empty after choose()
};

// Everything on which the choice of an algorithm depends.
using Key = std::tuple<int, int, int, bool, bool, bool, bool, Precision, Precision, std::uint32_t>;
Key key_of(const Product& p, const Operands& o, std::uint32_t alignment) {
  return {
      p.m,      p.n,      p.k,      p.transpose_a, p.transpose_b, o.c != nullptr, o.bias != nullptr,
      p.inputs, p.output, alignment};
}

const char* name_of(Precision precision) {
  return precision == Precision::kBf16 ? "bf16" : "fp32";
}

std::string text_of(const Product& p, const Operands& o, std::uint32_t alignment) {
  return std::string("a product ") + std::to_string(p.m) + " x " + std::to_string(p.n) + " x " +
         std::to_string(p.k) + (p.transpose_a ? ", A transposed" : "") +
         (p.transpose_b ? ", B transposed" : "") + ", " + name_of(p.inputs) + " to " +
         name_of(p.output) + (o.c != nullptr ? ", adds C" : "") +
         (o.bias != nullptr ? ", adds a bias" : "") + ", aligned to " + std::to_string(alignment) +
         " bytes";
}

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

  void run(const Product& product, const Operands& operands) override {
    if (!failure_.empty()) return;
    const std::uint32_t alignment = alignment_of(operands);
    const Key key = key_of(product, operands, alignment);
    if (plain_.contains(key)) return multiply_plainly(stream_, product, operands);
    std::unique_ptr<Plan>& plan = plans_[key];
    const bool is_new = plan == nullptr;
    const bool adds_bias = operands.bias != nullptr;
    if (is_new) plan = std::make_unique<Plan>(product, adds_bias);
    if (adds_bias) plan->set_bias(operands.bias);
    cublasStatus_t status = is_new ? plan->choose(handle_, alignment) : CUBLAS_STATUS_SUCCESS;
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = plan->run(handle_, operands, workspace_.data(), stream_);
    }
    if (status == CUBLAS_STATUS_SUCCESS) return;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
      // A product without the bias, which a kernel adds, would be rounded twice.
      log_warn("stage", "cuBLASLt has no algorithm for " + text_of(product, operands, alignment) +
                            "; a kernel without tensor cores computes it, which is much slower");
      plain_.insert(key);
      return multiply_plainly(stream_, product, operands);
    }
    if (is_new) plan.reset();
    failure_ = "cuBLASLt: " + std::string(cublasLtGetStatusString(status)) + " for " +
               text_of(product, operands, alignment);
  }
  const std::string& failure() const override { return failure_; }
  void forget_failure() override { failure_.clear(); }

 private:
  const cublasLtHandle_t handle_;
  const device::Buffer workspace_;
  const cudaStream_t stream_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  std::set<Key> plain_;  // no algorithm has run them
  std::string failure_;
};

}  // namespace

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

}  // namespace weir::stage::ops
