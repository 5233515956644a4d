// SPDX-License-Identifier: Apache-2.0
// Sums of gradients, or means of parameters, over the ranks of a communicator, one after the other.
// Each has three operations on its stream: the segments i of all ranks go to rank i; rank i adds
// them in the order of the ranks; and rank i sends the result to all. Segments and order are those
// of TCP (tcp/replica_group.h), so the results are bit-equal. Driver thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

#include "worker/device/device.h"
#include "worker/transport/collective.h"
#include "worker/transport/nccl/watched.h"

namespace weir::transport::nccl {

// Counters of all communicators of a rank. Any thread.
class SumCounters {
 public:
  CollectiveCounters read() const {
    const std::lock_guard lock(mutex_);
    return counters_;
  }
  void change(const std::function<void(CollectiveCounters&)>& how) {
    const std::lock_guard lock(mutex_);
    how(counters_);
  }

 private:
  mutable std::mutex mutex_;  // guards counters_
  CollectiveCounters counters_;
};

class SumStream {
 public:
  using Time = Watched::Time;

  // The references outlive the object.
  SumStream(Watched& group, std::size_t rank, std::size_t ranks, const Limits& limits,
            SumCounters& counters)
      : group_(group), rank_(rank), ranks_(ranks), limits_(limits), counters_(counters) {}

  // Device memory for the others' parts of this rank's segment.
  static std::size_t scratch_bytes(const AllReduce& sum, std::size_t rank);

  // All ranks are ready for the sum and post it next. The tensor is computed, and only other sums
  // still use `scratch`.
  void post(AllReduce sum, device::Buffer scratch);
  // Does everything that is possible now. Returns true if the GPU must be polled again.
  Result<bool> progress(Time now);
  bool idle() const { return sums_.empty(); }
  std::size_t finished() const { return finished_; }  // sums so far

 private:
  enum class Phase : unsigned char { kContributions, kResults, kLaunched };
  struct Sum {
    AllReduce order;
    device::Buffer scratch;
    Phase phase = Phase::kContributions;  // the next launch
    std::size_t operations_done = 0;
  };

  static std::size_t input_bytes(const AllReduce& sum) {
    return sum.weights.empty() ? sizeof(double) : sizeof(float);
  }
  std::size_t own_count(const Sum& sum) const { return sum.order.segment_count(rank_); }
  const std::byte* input(const Sum& sum, std::size_t rank) const;  // of this rank's segment
  Result<bool> launch();
  Status contribute(const Sum& sum);
  Status combine(const Sum& sum);
  Status reduce(const Sum& sum, std::byte* out);
  void note_moved(const Sum& sum, std::chrono::nanoseconds took);
  Status take_finished(Time now);

  Watched& group_;
  const std::size_t rank_, ranks_;
  const Limits& limits_;
  std::deque<Sum> sums_;
  std::size_t finished_ = 0;
  SumCounters& counters_;
};

}  // namespace weir::transport::nccl
