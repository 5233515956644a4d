// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/staged_collective.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <string>
#include <utility>

namespace weir::transport {
namespace {

// Limit for all copies of a step; gigabytes take less than a second.
constexpr std::chrono::seconds kCopyLimit{30};

}  // namespace

StagedCollective::StagedCollective(device::Device& device, std::unique_ptr<Collective> host)
    : device_(device), host_(std::move(host)) {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "weir-staging");
    hand_over(stop);
  });
}

// host_ is destroyed first, since it uses the memory. The copies end before their memory is freed.
StagedCollective::~StagedCollective() {
  thread_.request_stop();
  thread_.join();
  calls_.clear();
  host_.reset();
}

Status StagedCollective::stage(AllReduce& operation, Call& call) {
  Staged one{.step = operation.tag.step,
             .in = device_.allocate_staging(operation.in.size()),
             .out = device_.allocate_staging(operation.out.size()),
             .result = operation.out};
  if (!one.in || !one.out) {
    return Error{Code::kInternal, "no staging memory left for " +
                                      std::to_string(operation.in.size() + operation.out.size()) +
                                      " bytes of sums"};
  }
  WEIR_TRY(call.input,
           device_.read_beside(one.in.data(), operation.in.data(), operation.in.size()));
  operation.in = {one.in.data(), operation.in.size()};
  operation.out = {one.out.data(), operation.out.size()};
  staged_.push_back(std::move(one));
  return Unit{};
}

void StagedCollective::all_reduce(AllReduce operation) {
  Call call;
  if (operation.on_device && operation.count > 0) {
    if (const Status done = stage(operation, call); !done) return fail(done.error());
  }
  call.reduce = std::move(operation);
  post(std::move(call));
}

void StagedCollective::all_gather(AllGather operation) {
  Call call;
  call.gather = std::move(operation);
  post(std::move(call));
}

void StagedCollective::post(Call call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  changed_.notify_all();
}

// Tells the other members first, because the caller may destroy this object as soon as it learns of
// the error.
void StagedCollective::fail(const Error& error) {
  host_->abort(error.message);
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  changed_.notify_all();
}

// The host's collective is called by this thread, and by the caller's thread once all operations
// have been passed on.
void StagedCollective::hand_over(const std::stop_token& stop) {
  for (;;) {
    Call call;
    {
      std::unique_lock lock(mutex_);
      handing_ = false;
      changed_.notify_all();
      changed_.wait(lock, stop, [this] { return !calls_.empty(); });
      if (stop.stop_requested() || error_) return;
      call = std::move(calls_.front());
      calls_.pop_front();
      handing_ = true;
    }
    if (call.input) {
      if (const Status copied = call.input->wait(); !copied) {
        fail(copied.error());
        return;
      }
    }
    if (call.reduce) host_->all_reduce(*std::move(call.reduce));
    if (call.gather) host_->all_gather(*std::move(call.gather));
  }
}

Result<bool> StagedCollective::handed_over(Time deadline, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const bool all = changed_.wait_until(lock, stop, deadline,
                                       [this] { return error_ || (calls_.empty() && !handing_); });
  if (error_) return *error_;
  return all;
}

Result<bool> StagedCollective::wait(Time deadline, std::stop_token stop) {
  WEIR_TRY(const bool handed, handed_over(deadline, stop));
  if (!handed) return false;
  WEIR_TRY(const bool done, host_->wait(deadline, std::move(stop)));
  if (!done || staged_.empty()) return done;
  if (const Status taken = take_results(); !taken) {
    fail(taken.error());
    return taken.error();
  }
  return true;
}

Status StagedCollective::take_results() {
  for (const Staged& one : staged_) {
    WEIR_OK(device_.copy(one.result.data(), one.out.data(), one.result.size()));
  }
  WEIR_OK(device_.synchronize());
  staged_.clear();
  return Unit{};
}

Result<int> StagedCollective::abandon(std::uint64_t step) {
  WEIR_TRY(const bool handed, handed_over(std::chrono::steady_clock::now() + kCopyLimit, {}));
  if (!handed) {
    const Error late{Code::kInternal, "device " + device_.name() + " does not end its copies"};
    fail(late);
    return late;
  }
  const Result<int> missing = host_->abandon(step);
  std::erase_if(staged_, [&](const Staged& one) { return one.step == step; });
  return missing;
}

std::optional<Error> StagedCollective::trouble() const {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return error_;
  }
  return host_->trouble();
}

std::unique_ptr<Collective> staged(device::Device& device, std::unique_ptr<Collective> host) {
  if (device.is_host()) return host;
  return std::make_unique<StagedCollective>(device, std::move(host));
}

}  // namespace weir::transport
