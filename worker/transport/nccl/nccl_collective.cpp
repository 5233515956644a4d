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

constexpr std::chrono::microseconds kBusyPoll{50};  // as for a link
constexpr std::chrono::milliseconds kTroublePoll{20};
constexpr std::chrono::milliseconds kIdleWait{200};
constexpr std::chrono::seconds kPartLimit{2};  // for the last sum of the others

using Count = std::uint64_t;  // number of elements in the announcement of a sum

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
      sums_(*comm_, rank_, replicas_.size(), limits_, counters_) {
  watchdog_.emplace(*api_, std::vector<Watched*>{comm_.get()}, limits_,
                    Watchdog::Callbacks{.may_end = [this](std::size_t) { return comm_->due == 0; },
                                        .failed =
                                            [this](std::size_t, const std::string& reason) {
                                              note_failure({Code::kUnavailable, reason});
                                            },
                                        .ends = [] {}});
  means_.emplace(*api_, *watchdog_, *tcp_, limits_, counters_,
                 MeanRounds::Place{replicas_[rank_], up.stage, std::move(up.name)},
                 [this] { wakes_.try_push(Unit{}); });
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

// Data sent by a finished sum may still be under way, and needs this rank until all have it.
void NcclCollective::part_from_others() {
  {
    const std::lock_guard lock(mutex_);
    if (error_ || done_ != calls_ || !open_sum_) return;
  }
  tcp_->all_gather(word_of(replicas_, tcp_tag(*open_sum_, TcpPart::kEnd)));
  static_cast<void>(tcp_->wait(steady_clock::now() + kPartLimit, {}));
}

bool NcclCollective::take_scratch(Call& call) {
  const std::size_t bytes = call.way == Way::kSum
                                ? SumStream::scratch_bytes(*call.reduce, rank_)
                                : MeanRounds::scratch_bytes(*call.reduce, replicas_[rank_]);
  if (scratch_.size() < bytes) scratch_ = device_.allocate(bytes);
  call.scratch = scratch_;
  return bytes == 0 || static_cast<bool>(scratch_);
}

NcclCollective::Way NcclCollective::way_of(const AllReduce& operation) const {
  if (!operation.on_device || operation.count == 0) return Way::kTcp;
  if (operation.weights.empty()) return operation.members == replicas_ ? Way::kSum : Way::kTcp;
  return operation.members.size() > 1 ? Way::kMean : Way::kTcp;
}

void NcclCollective::all_reduce(AllReduce operation) {
  WEIR_CHECK(operation.combine != nullptr, "an all-reduce combines");
  WEIR_CHECK(operation.weights.empty() || operation.weights.size() == operation.members.size(),
             "one weight for each member");
  Call call{.way = way_of(operation)};
  open_sum_.reset();
  if (call.way == Way::kSum) open_sum_ = operation.tag;
  // Data sent by a finished mean may still be under way. The empty gather after it completes when
  // all members have the whole mean.
  Call word{.way = Way::kWord};
  if (call.way == Way::kMean && !operation.more) {
    word.gather = word_of(operation.members, tcp_tag(operation.tag, TcpPart::kEnd));
  }
  const std::size_t input = operation.weights.empty() ? sizeof(double) : sizeof(float);
  WEIR_CHECK(call.way == Way::kTcp || (operation.in.size() == operation.count * input &&
                                       operation.out.size() == operation.count * sizeof(float)),
             "doubles or floats become floats");
  const bool on_device = operation.on_device;
  call.reduce = std::move(operation);
  if (call.way != Way::kTcp && !take_scratch(call)) {
    return fail({Code::kInternal, "device " + device_.name() + " has no memory left for sums"});
  }
  if (on_device) call.computed = api_->mark();
  post(std::move(call));
  if (word.gather) post(std::move(word));
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
    if (call.way == Way::kSum) ++sums_called_;
    inbox_.push_back(std::move(call));
  }
  wakes_.try_push(Unit{});
}

Result<bool> NcclCollective::wait(Time deadline, std::stop_token stop) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, stop, deadline,
                        [this] { return error_ || missing_ || done_ == calls_; });
    if (error_) return *error_;
    if (missing_) return *missing_;
    if (done_ != calls_) return false;
  }
  return tcp_->wait(deadline, std::move(stop));
}

void NcclCollective::abort(const std::string& reason) noexcept {
  fail({Code::kUnavailable, reason});
}

CollectiveCounters NcclCollective::counters() const {
  CollectiveCounters all = tcp_->counters();
  CollectiveCounters own = counters_.read();
  all.operations += own.operations;
  all.bytes_sent += own.bytes_sent;
  all.busy += own.busy;
  all.received = std::move(own.received);  // only small words come by TCP
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
  tcp_->abort(error.message);  // tells the others, because NCCL does not always do so
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
    const Status dropped = drop_abandoned();
    if (!dropped) return fail(dropped.error());
    const Result<bool> busy = work();
    if (!busy) return fail(busy.error());
    const std::chrono::nanoseconds pause = *busy         ? kBusyPoll
                                           : none_runs() ? kIdleWait
                                                         : kTroublePoll;
    wakes_.pop(steady_clock::now() + pause, {});
  }
}

// Does everything that is possible now. Returns true if the GPU must be polled again soon.
Result<bool> NcclCollective::work() {
  WEIR_OK(take_announced());
  bool busy = false, busy_with_means = false;
  {
    const Watchdog::Use use(*watchdog_);
    if (!use) return Error{Code::kCancelled, "aborted"};
    WEIR_TRY(busy, sums_.progress(steady_clock::now()));
    WEIR_TRY(busy_with_means, work_on_means());
  }
  if (const std::size_t sums = sums_.finished() - finished_; sums > 0) {
    finished_ += sums;
    note_done(sums);
  }
  // Checked before new calls begin: with a call after the last sum, the others may need this rank
  // no longer.
  if (!announced_.empty() || !sums_.idle()) {
    if (const auto trouble = tcp_->trouble()) return *trouble;
  }
  WEIR_TRY(const bool computing, begin_calls());
  return busy || busy_with_means || computing;
}

// A mean that fails ends its round but not this object.
Result<bool> NcclCollective::work_on_means() {
  if (means_failed_) return false;
  const std::size_t before = means_->finished();
  const Result<bool> busy = means_->progress(steady_clock::now());
  if (const std::size_t means = means_->finished() - before; means > 0) note_done(means);
  if (busy || busy.error().code == Code::kConflict) return busy;
  means_failed_ = true;
  {
    const std::lock_guard lock(mutex_);
    missing_ = busy.error();
  }
  changed_.notify_all();
  return false;
}

// Returns true if a tensor is still being computed.
Result<bool> NcclCollective::begin_calls() {
  while (!waiting_.empty() && !means_failed_) {
    Call& next = waiting_.front();
    const bool waits = next.way == Way::kSum ? !means_->idle()
                       : next.way == Way::kMean
                           ? !announced_.empty() || !sums_.idle() || !means_->takes(*next.reduce)
                           : !none_runs();
    if (waits) return false;
    if (next.computed) {
      WEIR_TRY(const bool computed, next.computed->done());
      if (!computed) return true;
    }
    WEIR_OK(begin(std::move(next)));
    waiting_.pop_front();
  }
  return false;
}

Status NcclCollective::begin(Call call) {
  tcp_step_ = call.step();
  switch (call.way) {
    case Way::kSum:
      announce(std::move(call));
      return Unit{};
    case Way::kMean: {
      const Watchdog::Use use(*watchdog_);
      if (!use) return Error{Code::kCancelled, "aborted"};
      means_->post(*std::move(call.reduce), std::move(call.scratch));
      return Unit{};
    }
    case Way::kWord:
      tcp_->all_gather(*std::move(call.gather));
      break;
    case Way::kTcp:
      if (call.reduce) {
        call.reduce->tag = tcp_tag(call.reduce->tag, TcpPart::kItself);
        tcp_->all_reduce(*std::move(call.reduce));
      } else {
        call.gather->tag = tcp_tag(call.gather->tag, TcpPart::kItself);
        tcp_->all_gather(*std::move(call.gather));
      }
      break;
  }
  note_done(1);
  return Unit{};
}

// Nothing is launched before all have announced: a kernel of NCCL that waits for a late rank would
// occupy a part of the GPU.
void NcclCollective::announce(Call call) {
  Announced one{.sum = *std::move(call.reduce),
                .scratch = std::move(call.scratch),
                .counts = std::make_shared<std::vector<std::vector<std::byte>>>()};
  const Count count = one.sum.count;
  std::vector<std::byte> own(sizeof count);
  std::memcpy(own.data(), &count, sizeof count);
  tcp_->all_gather({.tag = tcp_tag(one.sum.tag, TcpPart::kItself),
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
