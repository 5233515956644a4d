// SPDX-License-Identifier: Apache-2.0
// Makes the communicator of all replicas of a stage. They exchange their versions and GPUs and one
// unique id over the TCP collective, make the communicator without blocking, and exchange a small
// message, because NCCL connects lazily. Everything runs on the calling thread, within a deadline.
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/device/device.h"
#include "worker/transport/collective.h"
#include "worker/transport/nccl/records.h"
#include "worker/transport/nccl/watched.h"

namespace weir::transport::nccl {

struct GroupUp {
  std::unique_ptr<Collective> tcp;
  std::unique_ptr<Watched> comm;
  std::vector<int> replicas;  // by rank, rising; includes this one
  std::size_t rank = 0;
  std::string name;  // prefix of communicator names, e.g. "job/3.0/"
  int stage = 0;
};

class GroupIntroduction {
 public:
  using Time = std::chrono::steady_clock::time_point;

  GroupIntroduction(NcclApi& api, device::Device& device, const ReplicaGroupGeneration& generation,
                    std::unique_ptr<Collective> tcp);

  // Call it once. kTimeout, kUnavailable and kConflict (check_peer) name the peer or the group;
  // kCancelled: stop was requested. On failure, everything that was opened is aborted.
  Result<GroupUp> run(Time deadline, const std::stop_token& stop);

 private:
  std::string name_of_rank(std::size_t rank) const;
  // Returns the blocks of all replicas. All replicas make the same calls.
  Result<std::vector<std::vector<std::byte>>> gather(std::vector<std::byte> own,
                                                     const char* awaited);
  Result<UniqueId> agree();
  Status open(const UniqueId& id);
  Status warm();
  // Polls until `done` returns true. At the deadline the error names `awaited`.
  Status until(const std::function<Result<bool>()>& done, const char* awaited) const;

  NcclApi& api_;
  device::Device& device_;
  const ReplicaGroupGeneration& generation_;
  // For the first messages; declared before the communicator that may still use it.
  device::Buffer memory_;
  GroupUp up_;
  std::uint32_t gathers_ = 0;
  Time deadline_{};
  std::stop_token stop_;
};

}  // namespace weir::transport::nccl
