// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/watchdog.h"

#include <algorithm>
#include <pthread.h>
#include <utility>

#include "worker/base/log.h"

namespace weir::transport::nccl {
namespace {

using std::chrono::steady_clock;

constexpr auto kUseLimit = std::chrono::seconds(2);  // longer than any call that does not hang
constexpr auto kUseSlice = std::chrono::milliseconds(5);

}  // namespace

Watchdog::Watchdog(NcclApi& api, std::vector<Watched*> watched, const Limits& limits,
                   Callbacks callbacks)
    : api_(api), watched_(std::move(watched)), limits_(limits), callbacks_(std::move(callbacks)) {
  thread_ = std::jthread([this] {
    pthread_setname_np(pthread_self(), "weir-nccl-watch");
    run();
  });
}

void Watchdog::end() {
  abort();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::run() {
  while (!wakes_.pop(steady_clock::now() + limits_.watch_interval, {})) {
    const std::optional<Finding> finding = look(steady_clock::now());
    if (!finding) continue;
    log_error("transport", "NCCL: a communicator is broken", {{"reason", finding->reason}});
    callbacks_.failed(finding->index, finding->reason);
    break;
  }
  callbacks_.ends();
  abort_all();
}

std::optional<Watchdog::Finding> Watchdog::look(Time now) {
  const Time::rep since = in_since_;
  const bool stuck = since != 0 && now - Time(Time::duration(since)) > limits_.transfer;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const Watched& one = *watched_[i];
    const Result<bool> ready = one.comm->ready();
    if (!ready && !callbacks_.may_end(i)) return Finding{i, one.broken(ready.error()).message};
    if (one.overdue(now)) {
      return Finding{i, one.name + ": a message has not arrived within its time limit"};
    }
  }
  if (stuck && !watched_.empty()) {
    return Finding{0, watched_.front()->name + ": a call of NCCL does not return"};
  }
  return std::nullopt;
}

// A driver that is stuck inside a call returns when its communicator is aborted.
void Watchdog::abort_all() {
  aborted_ = true;
  const Time limit =
      steady_clock::now() + std::min<std::chrono::nanoseconds>(kUseLimit, limits_.transfer);
  std::unique_lock lock(use_mutex_, std::defer_lock);
  while (!lock.try_lock() && steady_clock::now() < limit) std::this_thread::sleep_for(kUseSlice);
  std::vector<NcclComm*> comms;
  for (const Watched* one : watched_) comms.push_back(one->comm.get());
  const std::lock_guard more_lock(more_mutex_);
  comms.insert(comms.end(), more_.begin(), more_.end());
  api_.abort(comms);
}

void Watchdog::add(NcclComm& comm) {
  const std::lock_guard lock(more_mutex_);
  more_.push_back(&comm);
}

void Watchdog::remove(NcclComm& comm) {
  const std::lock_guard lock(more_mutex_);
  std::erase(more_, &comm);
}

}  // namespace weir::transport::nccl
