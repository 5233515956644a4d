// SPDX-License-Identifier: Apache-2.0
// The host's kernels, and the choice of kernels by device.
#include "worker/stage/ops/kernels.h"

namespace weir::stage::ops {
namespace {

class HostKernels final : public Kernels {
 public:
  explicit HostKernels(Precision precision) : precision_(precision) {}
  void run(const Op& op) override {
    std::visit([this](const auto& one) { run_on_host(one, precision_); }, op);
  }

 private:
  const Precision precision_;
};

}  // namespace

std::unique_ptr<Kernels> make_host_kernels(Precision precision) {
  return std::make_unique<HostKernels>(precision);
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
