// SPDX-License-Identifier: Apache-2.0
// The NCCL transport: communicators whose tensors stay in device memory, and a TCP communicator of
// the same generation that carries everything else (README.md).
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
  // The device outlives it and what it makes. kInvalid: one line that says why check_start()
  // failed.
  static Result<std::unique_ptr<NcclTransport>> make(std::shared_ptr<nccl::NcclApi> api,
                                                     device::Device& device,
                                                     const nccl::Limits& limits = {});

  // Uses `tcp`, the connected communicator of that generation; all stages must do the same. Blocks;
  // call it on the thread that enqueues ops. Errors are those of TcpTransport::connect and name the
  // peer and the link. kConflict also: two stages on one GPU, or different versions of NCCL.
  Result<std::unique_ptr<Communicator>> connect(const Generation& generation,
                                                std::unique_ptr<Communicator> tcp,
                                                std::chrono::steady_clock::time_point deadline,
                                                const std::stop_token& stop);
  // The same for the replicas of a stage, over `tcp`, the collective of that generation.
  Result<std::unique_ptr<Collective>> connect_replica_group(
      const ReplicaGroupGeneration& generation, std::unique_ptr<Collective> tcp,
      std::chrono::steady_clock::time_point deadline, const std::stop_token& stop);

 private:
  NcclTransport(std::shared_ptr<nccl::NcclApi> api, device::Device& device,
                const nccl::Limits& limits)
      : api_(std::move(api)), device_(device), limits_(limits) {}

  const std::shared_ptr<nccl::NcclApi> api_;
  device::Device& device_;
  const nccl::Limits limits_;
};

// Uses NCCL on a CUDA device. kInvalid, one line: a build without CUDA, another device, or
// check_start() failed.
Result<std::unique_ptr<NcclTransport>> open_nccl(device::Device& device);

}  // namespace weir::transport
