// SPDX-License-Identifier: Apache-2.0
// Only this file knows whether the build has NCCL.
#include "worker/transport/nccl/nccl_transport.h"
#ifdef WEIR_CUDA
#include "worker/transport/nccl/cuda_nccl_api.h"
#endif

namespace weir::transport {

Result<std::unique_ptr<NcclTransport>> open_nccl(device::Device& device) {
#ifdef WEIR_CUDA
  const auto* cuda = dynamic_cast<const device::CudaDevice*>(&device);
  if (cuda == nullptr) return invalid("NCCL needs --device=cuda, not " + device.name());
  return NcclTransport::make(nccl::make_cuda_nccl_api(*cuda), device);
#else
  static_cast<void>(device);
  return invalid("NCCL needs a CUDA build; this weir-worker was built without (WEIR_CUDA=OFF)");
#endif
}

}  // namespace weir::transport
