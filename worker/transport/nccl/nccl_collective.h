// SPDX-License-Identifier: Apache-2.0
// The Collective of the NCCL transport. Operations that a device may do (AllReduce::on_device) use
// NCCL and are added on the GPU, bit-equal to those over TCP: sums over all replicas use one
// communicator, means of some replicas use one of theirs (mean_rounds.h). All other operations use
// the TCP collective of the same generation, which only reaches host memory. A driver thread tells
// the other replicas when this rank's part of an operation is computed, and launches the operation
// when all have said so. A watchdog thread aborts.
//
// Additional rules: an operation by TCP that follows operations by NCCL begins when those have
// finished, so its result implies that all members have theirs. Means are complete when they are
// complete at all members (unless AllReduce::more is set). A sum by NCCL cannot be abandoned alone:
// abandon() during a sum ends this object. Means can be abandoned.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "worker/base/bounded_queue.h"
#include "worker/transport/nccl/group_introduction.h"
#include "worker/transport/nccl/mean_rounds.h"
#include "worker/transport/nccl/sum_stream.h"
#include "worker/transport/nccl/watchdog.h"

namespace weir::transport::nccl {

class NcclCollective final : public Collective {
 public:
  using Time = Watched::Time;

  // The device outlives it.
  NcclCollective(std::shared_ptr<NcclApi> api, device::Device& device, GroupUp up,
                 const Limits& limits);
  ~NcclCollective() override;
  NcclCollective(const NcclCollective&) = delete;
  NcclCollective& operator=(const NcclCollective&) = delete;

  void all_reduce(AllReduce operation) override;
  void all_gather(AllGather operation) override;
  Result<bool> wait(Time deadline, std::stop_token stop) override;
  Result<int> abandon(std::uint64_t step) override;
  void abort(const std::string& reason) noexcept override;
  CollectiveCounters counters() const override;
  std::optional<Error> trouble() const override;
  std::optional<Absence> absent(std::span<const int> members, std::uint64_t step) const override {
    return tcp_->absent(members, step);
  }

 private:
  // Calls that have not begun.
  // kWord: an empty gather over TCP with a tag of TCP.
  enum class Way : unsigned char { kTcp, kSum, kMean, kWord };
  struct Call {
    Way way = Way::kTcp;
    std::optional<AllReduce> reduce;
    std::optional<AllGather> gather;
    // The tensor is computed, and the last use of the memory is over. Set if it is on the device.
    std::unique_ptr<Mark> computed;
    device::Buffer scratch;

    std::uint64_t step() const { return reduce ? reduce->tag.step : gather->tag.step; }
  };
  // A sum for which this rank is ready.
  struct Announced {
    AllReduce sum;
    device::Buffer scratch;
    // Element counts of the others' sums.
    std::shared_ptr<std::vector<std::vector<std::byte>>> counts;
  };

  Way way_of(const AllReduce& operation) const;
  bool take_scratch(Call& call);
  void post(Call call);
  void drive(const std::stop_token& stop);
  Result<bool> work();
  Result<bool> work_on_means();
  Result<bool> begin_calls();
  Status begin(Call call);
  Status drop_abandoned();
  bool none_runs() const { return announced_.empty() && sums_.idle() && means_->idle(); }
  void announce(Call call);
  Status take_announced();
  void note_done(std::size_t calls);
  void note_failure(const Error& error);
  void fail(const Error& error);
  void part_from_others();

  const std::shared_ptr<NcclApi> api_;
  device::Device& device_;
  const Limits limits_;
  std::unique_ptr<Collective> tcp_;
  const std::unique_ptr<Watched> comm_;
  const std::vector<int> replicas_;
  const std::size_t rank_;
  // Used by the caller's thread.
  std::optional<CollectiveTag> open_sum_;  // the last call, if it is a sum by NCCL
  device::Buffer scratch_;                 // for all operations by NCCL, which follow each other

  SumCounters counters_;
  // Used by the driver thread.
  SumStream sums_;
  std::optional<MeanRounds> means_;
  bool means_failed_ = false;              // until the means are abandoned
  std::optional<std::uint64_t> tcp_step_;  // of the last call that was passed to TCP
  std::deque<Call> waiting_;
  std::deque<Announced> announced_;
  std::size_t taken_ = 0, finished_ = 0;  // number of sums

  std::atomic<std::size_t> ready_ = 0;  // sums that all replicas have announced
  BoundedQueue<Unit> wakes_{1};         // wakes the driver

  mutable std::mutex mutex_;  // guards the fields below
  std::condition_variable_any changed_;
  std::vector<Call> inbox_;
  std::size_t calls_ = 0, done_ = 0;  // done: finished by NCCL, or passed to TCP
  std::size_t sums_called_ = 0, sums_done_ = 0;
  std::optional<Error> error_;              // final error of this object
  std::optional<Error> missing_;            // why means can never be complete
  std::optional<std::uint64_t> abandoned_;  // a step, until the driver has dropped it
  int awaited_ = -1;                        // result of abandon()

  std::optional<Watchdog> watchdog_;
  std::jthread driver_;  // last member: uses all above
};

}  // namespace weir::transport::nccl
