// SPDX-License-Identifier: Apache-2.0
// The NCCL transport: communicators whose tensors stay in device memory, beside a TCP communicator
// of the same generation that carries everything else (README.md).
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/transport/collective.h"
#include "worker/transport/communicator.h"
#include "worker/transport/nccl/nccl_api.h"
#include "worker/transport/nccl/watched.h"

namespace weir::transport {

class NcclTransport {
 public:
  // The device outlives it and what it makes. kInvalid, one line: check_start() says why not.
  static Result<std::unique_ptr<NcclTransport>> make(std::shared_ptr<nccl::NcclApi> api,
                                                     device::Device& device,
                                                     const nccl::Limits& limits = {});

  // Over `tcp`, the connected communicator of that generation; all its stages must do the same.
  // Blocks; the thread is the one that enqueues ops. Errors as of TcpTransport::connect, they name
  // the peer and the link; kConflict also: two stages on one GPU, different NCCL.
  Result<std::unique_ptr<Communicator>> connect(const Generation& generation,
                                                std::unique_ptr<Communicator> tcp,
                                                std::chrono::steady_clock::time_point deadline,
                                                const std::stop_token& stop);
  // Likewise for the replicas of a stage, over `tcp`, the collective of that generation.
  Result<std::unique_ptr<Collective>> connect_group(const GroupGeneration& generation,
                                                    std::unique_ptr<Collective> tcp,
                                                    std::chrono::steady_clock::time_point deadline,
                                                    const std::stop_token& stop);

 private:
  NcclTransport(std::shared_ptr<nccl::NcclApi> api, device::Device& device,
                const nccl::Limits& limits)
      : api_(std::move(api)), device_(device), limits_(limits) {}

  const std::shared_ptr<nccl::NcclApi> api_;
  device::Device& device_;
  const nccl::Limits limits_;
};

// With NCCL itself, on a CUDA device. kInvalid, one line: a build without CUDA, another device, or
// check_start().
Result<std::unique_ptr<NcclTransport>> open_nccl(device::Device& device);

}  // namespace weir::transport
