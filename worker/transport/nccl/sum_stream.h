// SPDX-License-Identifier: Apache-2.0
// Sums over all replicas of a stage by NCCL, one after the other, each in three operations on the
// communicator's stream: everybody's segment i goes to rank i, which adds them in the order of the
// ranks and sends the result to all. The same segments and the same order as over TCP
// (tcp/replica_group.h), so the same bits. Driver thread; counters() from any.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "worker/device/device.h"
#include "worker/transport/collective.h"
#include "worker/transport/nccl/watched.h"

namespace weir::transport::nccl {

class SumStream {
 public:
  using Time = Watched::Time;

  SumStream(Watched& group, std::size_t rank, std::size_t ranks, const Limits& limits)
      : group_(group), rank_(rank), ranks_(ranks), limits_(limits) {}

  // Device memory for the others' parts of this rank's segment.
  static std::size_t scratch_bytes(const AllReduce& sum, std::size_t rank);

  // All ranks are ready for it, and post it next. Its tensor is computed, and nothing but other
  // sums uses `scratch` any more.
  void post(AllReduce sum, device::Buffer scratch);
  // Does what can be done now. True: the GPU is to be asked again.
  Result<bool> progress(Time now);
  bool idle() const { return sums_.empty(); }
  std::size_t finished() const { return finished_; }  // sums so far
  CollectiveCounters counters() const;

 private:
  enum class Phase : unsigned char { kContributions, kResults, kLaunched };
  struct Sum {
    AllReduce order;
    device::Buffer scratch;
    Phase phase = Phase::kContributions;  // what is launched next
    std::size_t operations_done = 0;
  };

  std::size_t own_count(const Sum& sum) const { return sum.order.segment_count(rank_); }
  const std::byte* input(const Sum& sum, std::size_t rank) const;  // of this rank's segment
  Result<bool> launch();
  Status contribute(const Sum& sum);
  Status combine(const Sum& sum);
  Status take_finished(Time now);

  Watched& group_;
  const std::size_t rank_, ranks_;
  const Limits& limits_;
  std::deque<Sum> sums_;
  std::size_t finished_ = 0;

  mutable std::mutex counters_mutex_;  // guards counters_
  CollectiveCounters counters_;
};

}  // namespace weir::transport::nccl
