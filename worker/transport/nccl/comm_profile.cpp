// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/comm_profile.h"

#include <algorithm>

namespace weir::transport::nccl {

CommProfile::CommProfile() {
  for (Event& event : events_) event.owner_ = this;
}

CommProfile::Event* CommProfile::take(Event::Kind kind, bool sending) {
  for (std::size_t i = 0; i < kEvents; ++i) {
    Event& event = events_[next_];
    next_ = (next_ + 1) % kEvents;
    if (event.kind_ != Event::Kind::kFree) continue;
    event.kind_ = kind;
    event.sending_ = sending;
    event.waits_.reset();
    return &event;
  }
  ++dropped_;
  return nullptr;
}

CommProfile::Event* CommProfile::start_op(bool sending) {
  const std::lock_guard lock(mutex_);
  return take(Event::Kind::kOp, sending);
}

CommProfile::Event* CommProfile::start_step(const Event& op) {
  const std::lock_guard lock(mutex_);
  return take(Event::Kind::kStep, op.sending_);
}

CommProfile::Event* CommProfile::start_kernel(std::uint64_t at) {
  const std::lock_guard lock(mutex_);
  Event* const event = take(Event::Kind::kKernel, false);
  if (event != nullptr) event->gpu_start_ = at;
  return event;
}

// Adds the time since the last change to the state that was active.
void CommProfile::account(Direction& direction, Time now) {
  const Time since = direction.since.value_or(now);
  direction.since = now;
  if (now <= since) return;
  const auto most = std::ranges::find_if(direction.steps, [](int count) { return count > 0; });
  if (most == direction.steps.end()) return;
  switch (static_cast<Waits>(most - direction.steps.begin())) {
    case Waits::kNetwork:
      direction.times.network += now - since;
      break;
    case Waits::kPeer:
      direction.times.peer += now - since;
      break;
    case Waits::kGpu:
      direction.times.gpu += now - since;
      break;
  }
}

void CommProfile::waits(Event& step, Waits what, Time now, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (step.kind_ != Event::Kind::kStep || step.waits_ == what) return;
  Direction& direction = of(step);
  account(direction, now);
  if (step.waits_) --direction.steps[static_cast<std::size_t>(*step.waits_)];
  step.waits_ = what;
  ++direction.steps[static_cast<std::size_t>(what)];
  direction.times.bytes += static_cast<std::int64_t>(bytes);
}

// The kernels of a communicator run one after the other, and the blocks of a kernel run in
// parallel, so the time that they cover is counted.
void CommProfile::kernel_ends(Event& kernel, std::uint64_t at) {
  const std::lock_guard lock(mutex_);
  if (kernel.kind_ != Event::Kind::kKernel) return;
  const std::uint64_t start = std::max(kernel.gpu_start_, kernel_end_);
  if (at <= start) return;
  kernel_ += std::chrono::nanoseconds(at - start);
  kernel_end_ = at;
}

void CommProfile::stop(Event& event, Time now) {
  const std::lock_guard lock(mutex_);
  if (event.waits_) {
    Direction& direction = of(event);
    account(direction, now);
    --direction.steps[static_cast<std::size_t>(*event.waits_)];
  }
  event.kind_ = Event::Kind::kFree;
}

TransferTimes CommProfile::times(std::size_t direction, Time now) const {
  const std::lock_guard lock(mutex_);
  Direction copy = directions_[direction];
  account(copy, now);
  copy.times.kernel = kernel_;
  return copy.times;
}

std::int64_t CommProfile::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace weir::transport::nccl
