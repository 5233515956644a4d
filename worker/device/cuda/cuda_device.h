// SPDX-License-Identifier: Apache-2.0
// One CUDA device with one stream for all ops. Built with WEIR_CUDA only.
#pragma once

#include <memory>

#include "worker/device/device.h"

struct CUstream_st;

namespace weir::device {

class CudaDevice : public Device {
 public:
  virtual CUstream_st* stream() const = 0;  // cudaStream_t
  virtual int index() const = 0;            // for cudaSetDevice, which is per thread
};

// kNotFound with one line: no device, a driver or a compute capability that is too old.
Result<std::unique_ptr<Device>> make_cuda_device(int index);

}  // namespace weir::device
