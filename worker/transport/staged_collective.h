// SPDX-License-Identifier: Apache-2.0
// Operations on memory that host code cannot access, by a Collective that moves host memory. The
// device copies an input (AllReduce::on_device) to staging memory as soon as its ops have produced
// it, beside later ops. A thread waits for the copy and passes the operation to the host's
// Collective. Results are copied back within wait() when all operations are complete. Operations
// that are not on_device are passed through.
//
// An additional rule: ops after a call must not write to its input before wait() has reported
// completion. Needs pinned memory of the size of inputs and outputs.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "worker/device/device.h"
#include "worker/transport/collective.h"

namespace weir::transport {

class StagedCollective final : public Collective {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The device outlives this object. The caller's thread is that of the device.
  StagedCollective(device::Device& device, std::unique_ptr<Collective> host);
  ~StagedCollective() override;
  StagedCollective(const StagedCollective&) = delete;
  StagedCollective& operator=(const StagedCollective&) = delete;

  void all_reduce(AllReduce operation) override;
  void all_gather(AllGather operation) override;
  // Additional final error kInternal: the device failed, or no staging memory was left.
  Result<bool> wait(Time deadline, std::stop_token stop) override;
  Result<int> abandon(std::uint64_t step) override;
  void abort(const std::string& reason) noexcept override { host_->abort(reason); }
  CollectiveCounters counters() const override { return host_->counters(); }
  std::optional<Error> trouble() const override;
  std::optional<Absence> absent(std::span<const int> members, std::uint64_t step) const override {
    return host_->absent(members, step);
  }

 private:
  struct Call {  // exactly one of both operations
    std::optional<AllReduce> reduce;
    std::optional<AllGather> gather;
    std::unique_ptr<device::PendingCopy> input;  // null: no copy is needed
  };
  // An operation on staging memory that wait() has not yet found complete.
  struct Staged {
    std::uint64_t step = 0;
    device::Buffer in, out;
    std::span<std::byte> result;  // on the device
  };

  Status stage(AllReduce& operation, Call& call);
  void post(Call call);
  void hand_over(const std::stop_token& stop);
  Result<bool> handed_over(Time deadline, const std::stop_token& stop);
  Status take_results();
  void fail(const Error& error);

  device::Device& device_;
  std::vector<Staged> staged_;  // caller's thread; outlives host_, which uses its memory
  std::unique_ptr<Collective> host_;

  mutable std::mutex mutex_;  // guards the fields below
  std::condition_variable_any changed_;
  std::deque<Call> calls_;
  bool handing_ = false;        // the thread is passing on an operation
  std::optional<Error> error_;  // final error of this object

  std::jthread thread_;  // last member: uses all above
};

// The collective for replicas on that device: `host` itself if the device's memory is host memory.
std::unique_ptr<Collective> staged(device::Device& device, std::unique_ptr<Collective> host);

}  // namespace weir::transport
