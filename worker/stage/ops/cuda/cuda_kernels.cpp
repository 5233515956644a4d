// SPDX-License-Identifier: Apache-2.0
// Kernels as launches on the device's stream. A failed launch or product shows in status().
#include <string>
#include <utility>
#include <vector>

#include "worker/base/check.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/ops/cuda/gemm.h"
#include "worker/stage/ops/cuda/queue.h"
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

class CudaKernels final : public Kernels, private CudaQueue {
 public:
  CudaKernels(device::CudaDevice& device, std::unique_ptr<Gemm> gemm, Precision of_ops)
      : CudaQueue(device.stream(), of_ops), device_(device), gemm_(std::move(gemm)) {}

  void run(const Op& op) override {
    std::visit([this](const auto& one) { run_on_cuda(one, static_cast<CudaQueue&>(*this)); }, op);
    // CUDA keeps the last error only, and tells it at any later call.
    if (failed_.empty() && cudaPeekAtLastError() != cudaSuccess) failed_ = name_of(op);
  }

  Status status() const override {
    if (!gemm_->failure().empty()) return Error{Code::kInternal, gemm_->failure()};
    if (out_of_memory_) {
      return Error{Code::kInternal, "device " + device_.name() + " has no memory left for scratch"};
    }
    const cudaError_t error = cudaPeekAtLastError();
    if (error == cudaSuccess) return Unit{};
    return Error{Code::kInternal, std::string("CUDA: ") + cudaGetErrorString(error) +
                                      (failed_.empty() ? "" : ", first after " + failed_)};
  }

  bool makes_graphs() const override { return true; }
  Result<std::unique_ptr<Graph>> make_graph(std::span<const Op> ops) override {
    // Other threads continue to use their streams meanwhile.
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    cudaGraph_t taken = nullptr;
    cudaGraphExec_t graph = nullptr;
    if (error == cudaSuccess) {
      capturing_ = true;
      for (const Op& op : ops) run(op);
      capturing_ = false;
      error = cudaStreamEndCapture(stream, &taken);
    }
    const Status called = status();
    if (error == cudaSuccess && called) error = cudaGraphInstantiate(&graph, taken, 0);
    if (taken != nullptr) cudaGraphDestroy(taken);
    if (error == cudaSuccess && called) {
      has_graphs_ = true;
      return std::unique_ptr<Graph>(std::make_unique<CudaGraph>(graph, stream));
    }
    // None of these ops has run, so their failures do not concern later ops without a graph.
    gemm_->forget_failure();
    out_of_memory_ = false;
    failed_.clear();
    cudaGetLastError();
    if (!called) return called.error();
    return Error{Code::kInternal,
                 std::string("CUDA: making a graph: ") + cudaGetErrorString(error)};
  }

 private:
  void multiply(const Product& product, const Operands& operands) override {
    gemm_->run(product, operands);
  }
  // Grows as needed. All ops share the stream, so there is one user at a time. Memory to which
  // graphs write is kept.
  void* scratch_bytes(std::size_t bytes) override {
    if (scratch_.size() < bytes && !capturing_) {
      if (has_graphs_ && scratch_) outgrown_.push_back(std::move(scratch_));
      scratch_ = device_.allocate(bytes);
    }
    if (scratch_.size() >= bytes && scratch_) return scratch_.data();
    out_of_memory_ = true;
    return nullptr;
  }

  device::CudaDevice& device_;
  const std::unique_ptr<Gemm> gemm_;
  device::Buffer scratch_;
  std::vector<device::Buffer> outgrown_;
  std::string failed_;  // the first op with or before whose launch CUDA told an error
  bool out_of_memory_ = false, capturing_ = false, has_graphs_ = false;
};

}  // namespace

Result<std::unique_ptr<Kernels>> make_cuda_kernels(device::Device& device, Precision precision) {
  auto* cuda_device = dynamic_cast<device::CudaDevice*>(&device);
  WEIR_CHECK(cuda_device != nullptr, "CUDA kernels run on a CUDA device");
  WEIR_TRY(std::unique_ptr<Gemm> gemm, Gemm::make(*cuda_device));
  return std::unique_ptr<Kernels>(
      std::make_unique<CudaKernels>(*cuda_device, std::move(gemm), precision));
}

}  // namespace weir::stage::ops
