// SPDX-License-Identifier: Apache-2.0
// Makes the communicator of all replicas of a stage: they tell each other their versions, GPUs and
// one unique id over the TCP collective, make the communicator without blocking, and send each
// other a small message, as NCCL connects lazily. The calling thread does it all, within a
// deadline.
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
  std::vector<int> replicas;  // by rank, rising; this one among them
  std::size_t rank = 0;
  std::string name;  // "job/3.0/", of communicators
  int stage = 0;
};

class GroupIntroduction {
 public:
  using Time = std::chrono::steady_clock::time_point;

  GroupIntroduction(NcclApi& api, device::Device& device, const GroupGeneration& generation,
                    std::unique_ptr<Collective> tcp);

  // Once. kTimeout, kUnavailable, kConflict (check_peer) name the peer or the group; kCancelled:
  // stop. What was opened by then is aborted.
  Result<GroupUp> run(Time deadline, const std::stop_token& stop);

 private:
  std::string name_of_rank(std::size_t rank) const;
  // Everybody's block; the same calls at all replicas.
  Result<std::vector<std::vector<std::byte>>> gather(std::vector<std::byte> own,
                                                     const char* awaited);
  Result<UniqueId> agree();
  Status open(const UniqueId& id);
  Status warm();
  // Asks until it is true; at the deadline the error says what is `awaited`.
  Status until(const std::function<Result<bool>()>& done, const char* awaited) const;

  NcclApi& api_;
  device::Device& device_;
  const GroupGeneration& generation_;
  device::Buffer memory_;  // of the first messages; before the communicator that may still use it
  GroupUp up_;
  std::uint32_t gathers_ = 0;
  Time deadline_{};
  std::stop_token stop_;
};

}  // namespace weir::transport::nccl
