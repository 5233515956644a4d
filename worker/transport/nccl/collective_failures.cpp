// SPDX-License-Identifier: Apache-2.0
// NcclCollective if a member of an average does not come: abandons a round.
#include <algorithm>
#include <iterator>
#include <utility>

#include "worker/transport/nccl/nccl_collective.h"

namespace weir::transport::nccl {
namespace {

// Time for the driver to leave a mean: longer than it waits for the GPU (subgroups.cpp).
constexpr std::chrono::seconds kDropLimit{10};

}  // namespace

Result<int> NcclCollective::abandon(std::uint64_t step) {
  int awaited = -1;
  {
    std::unique_lock lock(mutex_);
    if (sums_called_ != sums_done_) {
      lock.unlock();
      fail({Code::kUnavailable, comm_->name + ": a sum by NCCL cannot be given up alone"});
      lock.lock();
    }
    abandoned_ = step;
    wakes_.try_push(Unit{});
    const auto limit = std::min<std::chrono::nanoseconds>(kDropLimit, 2 * limits_.transfer);
    const bool left = changed_.wait_for(lock, limit, [this] { return error_ || !abandoned_; });
    if (!left) {
      lock.unlock();
      fail({Code::kUnavailable, comm_->name + ": an average cannot be given up: NCCL hangs"});
      lock.lock();
    }
    if (error_) return *error_;
    awaited = awaited_;
  }
  WEIR_TRY(const int by_tcp, tcp_->abandon(step));
  return by_tcp >= 0 ? by_tcp : awaited;
}

// Both ends of a TCP session count it, even if none of its operations has begun. So at least one
// call is passed to TCP.
Status NcclCollective::drop_abandoned() {
  std::uint64_t step = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!abandoned_) return Unit{};
    step = *abandoned_;
    std::ranges::move(inbox_, std::back_inserter(waiting_));
    inbox_.clear();
  }
  std::size_t dropped = 0;
  {
    const Watchdog::Use use(*watchdog_);
    if (!use) return Error{Code::kCancelled, "aborted"};
    WEIR_TRY(dropped, means_->drop());
  }
  for (Call& call : std::exchange(waiting_, {})) {
    if (call.step() != step) {
      waiting_.push_back(std::move(call));
    } else if (call.way == Way::kTcp) {
      WEIR_OK(begin(std::move(call)));
    } else {
      if (tcp_step_ != step) means_->say_and_forget(*call.reduce);
      tcp_step_ = step;
      ++dropped;
    }
  }
  means_failed_ = false;
  {
    const std::lock_guard lock(mutex_);
    calls_ -= dropped;
    missing_.reset();
    awaited_ = means_->absence() ? means_->absence()->replica : -1;
    abandoned_.reset();
  }
  changed_.notify_all();
  return Unit{};
}

}  // namespace weir::transport::nccl
