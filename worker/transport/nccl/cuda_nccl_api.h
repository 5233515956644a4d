// SPDX-License-Identifier: Apache-2.0
// NcclApi on NCCL and CUDA. Built with WEIR_CUDA only.
#pragma once

#include <memory>

#include "worker/device/cuda/cuda_device.h"
#include "worker/transport/nccl/nccl_api.h"

namespace weir::transport::nccl {

// The device must outlive it.
std::shared_ptr<NcclApi> make_cuda_nccl_api(const device::CudaDevice& device);

}  // namespace weir::transport::nccl
