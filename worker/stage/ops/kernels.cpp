// SPDX-License-Identifier: Apache-2.0
// The host's kernels, and the choice of kernels by device.
#include "worker/stage/ops/kernels.h"

#include "worker/stage/ops/team.h"

namespace weir::stage::ops {
namespace {

class HostKernels final : public Kernels {
 public:
  HostKernels(Precision precision, int threads, std::ptrdiff_t largest_least)
      : team_(threads, largest_least), host_{precision, team_} {}
  void run(const Op& op) override {
    std::visit([this](const auto& one) { run_on_host(one, host_); }, op);
  }

 private:
  Team team_;
  const Host host_;
};

}  // namespace

std::unique_ptr<Kernels> make_host_kernels(Precision precision, int threads,
                                           std::ptrdiff_t largest_least) {
  return std::make_unique<HostKernels>(precision, threads, largest_least);
}

Result<std::unique_ptr<Kernels>> make_kernels(device::Device& device, Precision precision) {
  if (device.is_host()) return make_host_kernels(precision, device.threads());
#ifdef WEIR_CUDA
  return make_cuda_kernels(device, precision);
#else
  return Error{Code::kInternal,
               "device " + device.name() + ": this build has no operations for it"};
#endif
}

}  // namespace weir::stage::ops
