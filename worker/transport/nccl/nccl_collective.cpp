// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/nccl_collective.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <pthread.h>
#include <utility>

#include "worker/base/check.h"

namespace weir::transport::nccl {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::microseconds kBusyPoll{50};  // as of a link
constexpr std::chrono::milliseconds kTroublePoll{20};
constexpr std::chrono::milliseconds kIdleWait{200};
constexpr std::chrono::seconds kPartLimit{2};  // for the last sum of the others

using Count = std::uint64_t;  // what a rank announces: the elements of its sum

}  // namespace

NcclCollective::NcclCollective(std::shared_ptr<NcclApi> api, device::Device& device, GroupUp up,
                               const Limits& limits)
    : api_(std::move(api)),
      device_(device),
      limits_(limits),
      tcp_(std::move(up.tcp)),
      comm_(std::move(up.comm)),
      replicas_(std::move(up.replicas)),
      rank_(up.rank),
      sums_(*comm_, rank_, replicas_.size(), limits_) {
  watchdog_.emplace(*api_, std::vector<Watched*>{comm_.get()}, limits_,
                    Watchdog::Hooks{.may_end = [this](std::size_t) { return comm_->due == 0; },
                                    .failed =
                                        [this](std::size_t, const std::string& reason) {
                                          note_failure({Code::kUnavailable, reason});
                                        },
                                    .ends = [] {}});
  driver_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "weir-nccl-sums");
    drive(stop);
  });
}

NcclCollective::~NcclCollective() {
  part_from_others();
  driver_.request_stop();
  wakes_.try_push(Unit{});
  driver_.join();
  watchdog_->end();
  tcp_.reset();  // its thread wakes the driver
  comm_->log_times();
}

// What a finished sum has sent may still be on its way, and goes no further without this rank.
void NcclCollective::part_from_others() {
  {
    const std::lock_guard lock(mutex_);
    if (error_ || done_ != calls_ || !open_sum_) return;
  }
  tcp_->all_gather({.tag = {.step = open_sum_->step, .part = open_sum_->part + 1},
                    .members = replicas_,
                    .own = {},
                    .sizes = std::vector<std::size_t>(replicas_.size(), 0),
                    .blocks = std::make_shared<std::vector<std::vector<std::byte>>>(),
                    .counted = false});
  static_cast<void>(tcp_->wait(steady_clock::now() + kPartLimit, {}));
}

void NcclCollective::all_reduce(AllReduce operation) {
  WEIR_CHECK(operation.combine != nullptr, "an all-reduce combines");
  Call call;
  const bool by_nccl = operation.on_device && operation.count > 0 && operation.members == replicas_;
  if (by_nccl) {
    WEIR_CHECK(operation.in.size() == operation.count * sizeof(double) &&
                   operation.out.size() == operation.count * sizeof(float),
               "doubles become floats");
    const std::size_t bytes = SumStream::scratch_bytes(operation, rank_);
    if (scratch_.size() < bytes) {
      scratch_ = device_.allocate(bytes);
      if (!scratch_) {
        return fail({Code::kInternal, "device " + device_.name() + " has no memory left for sums"});
      }
    }
    call.scratch = scratch_;
    call.computed = api_->mark();
    open_sum_ = operation.tag;
  } else {
    open_sum_.reset();
  }
  call.reduce = std::move(operation);
  post(std::move(call));
}

void NcclCollective::all_gather(AllGather operation) {
  open_sum_.reset();
  Call call;
  call.gather = std::move(operation);
  post(std::move(call));
}

void NcclCollective::post(Call call) {
  {
    const std::lock_guard lock(mutex_);
    ++calls_;
    if (call.computed) ++sums_called_;
    inbox_.push_back(std::move(call));
  }
  wakes_.try_push(Unit{});
}

Result<bool> NcclCollective::wait(Time deadline, std::stop_token stop) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, stop, deadline, [this] { return error_ || done_ == calls_; });
    if (error_) return *error_;
    if (done_ != calls_) return false;
  }
  return tcp_->wait(deadline, std::move(stop));
}

Result<int> NcclCollective::abandon(std::uint64_t step) {
  {
    std::unique_lock lock(mutex_);
    if (sums_called_ != sums_done_) {
      lock.unlock();
      fail({Code::kUnavailable, comm_->name + ": a sum by NCCL cannot be given up alone"});
      lock.lock();
    }
    changed_.wait(lock, [this] { return error_ || done_ == calls_; });
    if (error_) return *error_;
  }
  return tcp_->abandon(step);
}

void NcclCollective::abort(const std::string& reason) noexcept {
  fail({Code::kUnavailable, reason});
}

CollectiveCounters NcclCollective::counters() const {
  CollectiveCounters all = tcp_->counters();
  const CollectiveCounters own = sums_.counters();
  all.operations += own.operations;
  all.bytes_sent += own.bytes_sent;
  all.busy += own.busy;
  return all;
}

std::optional<Error> NcclCollective::trouble() const {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return error_;
  }
  return tcp_->trouble();
}

void NcclCollective::note_failure(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
  }
  changed_.notify_all();
  tcp_->abort(error.message);  // the others shall know: NCCL does not always tell them
  wakes_.try_push(Unit{});
}

void NcclCollective::fail(const Error& error) {
  note_failure(error);
  watchdog_->abort();
}

void NcclCollective::note_done(std::size_t calls) {
  {
    const std::lock_guard lock(mutex_);
    done_ += calls;
    sums_done_ = finished_;
  }
  changed_.notify_all();
}

void NcclCollective::drive(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      const std::lock_guard lock(mutex_);
      if (error_) return;
      std::ranges::move(inbox_, std::back_inserter(waiting_));
      inbox_.clear();
    }
    const Result<bool> busy = work();
    if (!busy) return fail(busy.error());
    const std::chrono::nanoseconds pause = *busy                 ? kBusyPoll
                                           : !announced_.empty() ? kTroublePoll
                                                                 : kIdleWait;
    wakes_.pop(steady_clock::now() + pause, {});
  }
}

// All that can be done now. True: the GPU is to be asked again soon.
Result<bool> NcclCollective::work() {
  WEIR_TRY([[maybe_unused]] const Unit taken, take_announced());
  bool busy = false;
  {
    const Watchdog::Use use(*watchdog_);
    if (!use) return Error{Code::kCancelled, "aborted"};
    WEIR_TRY(busy, sums_.progress(steady_clock::now()));
  }
  if (const std::size_t sums = sums_.finished() - finished_; sums > 0) {
    finished_ += sums;
    note_done(sums);
  }
  // Before the calls: what is called behind the last sum may end the others' interest in this one.
  if (!announced_.empty() || !sums_.idle()) {
    if (const auto trouble = tcp_->trouble()) return *trouble;
  }
  WEIR_TRY(const bool computing, begin_calls());
  return busy || computing;
}

// True: a tensor is still being computed.
Result<bool> NcclCollective::begin_calls() {
  while (!waiting_.empty()) {
    Call& next = waiting_.front();
    if (next.computed) {
      WEIR_TRY(const bool computed, next.computed->done());
      if (!computed) return true;
      announce(std::move(next));
    } else {
      if (!announced_.empty() || !sums_.idle()) return false;
      if (next.reduce) tcp_->all_reduce(*std::move(next.reduce));
      if (next.gather) tcp_->all_gather(*std::move(next.gather));
      note_done(1);
    }
    waiting_.pop_front();
  }
  return false;
}

// A kernel of NCCL that waits for a late rank would hold a part of the GPU.
void NcclCollective::announce(Call call) {
  Announced one{.sum = *std::move(call.reduce),
                .scratch = std::move(call.scratch),
                .counts = std::make_shared<std::vector<std::vector<std::byte>>>()};
  const Count count = one.sum.count;
  std::vector<std::byte> own(sizeof count);
  std::memcpy(own.data(), &count, sizeof count);
  tcp_->all_gather({.tag = one.sum.tag,
                    .members = replicas_,
                    .own = std::move(own),
                    .sizes = std::vector<std::size_t>(replicas_.size(), sizeof count),
                    .blocks = one.counts,
                    .done =
                        [this] {
                          ++ready_;
                          wakes_.try_push(Unit{});
                        },
                    .counted = false});
  announced_.push_back(std::move(one));
}

Status NcclCollective::take_announced() {
  for (; taken_ < ready_; ++taken_, announced_.pop_front()) {
    Announced& next = announced_.front();
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      Count theirs = 0;
      std::memcpy(&theirs, (*next.counts)[r].data(), sizeof theirs);
      if (theirs == next.sum.count) continue;
      return Error{Code::kConflict, "replica " + std::to_string(replicas_[r]) + " sums " +
                                        std::to_string(theirs) + " values where this rank sums " +
                                        std::to_string(next.sum.count)};
    }
    sums_.post(std::move(next.sum), std::move(next.scratch));
  }
  return Unit{};
}

}  // namespace weir::transport::nccl
