// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/traffic_order.h"

#include <algorithm>
#include <utility>

#include "worker/base/units.h"

namespace weir::transport::tcp {
namespace {

using std::chrono::nanoseconds;

constexpr double kLeastRate = 64.0 * 1024;  // bytes per second of bulk while it yields
constexpr double kLeastShare = 1.0 / 16;    // of what the port carries
constexpr nanoseconds kLongestWait = std::chrono::milliseconds(250);
constexpr std::size_t kSmall = std::size_t{16} << 10U;

}  // namespace

void RecentBest::add(double value, Time now) {
  if (now - begin_ >= kWindow) {
    before_ = now - begin_ < 2 * kWindow ? present_ : 0;
    present_ = 0;
    begin_ = now;
  }
  present_ = std::max(present_, value);
}

double RecentBest::value(Time now) const {
  if (now - begin_ >= 2 * kWindow) return 0;
  return now - begin_ >= kWindow ? present_ : std::max(present_, before_);
}

void TrafficOrder::begin(TrafficClass of, TrafficDirection direction) noexcept {
  ++on_their_way_[index(direction)][static_cast<std::size_t>(of)];
}

void TrafficOrder::end(TrafficClass of, TrafficDirection direction) noexcept {
  const int left = --on_their_way_[index(direction)][static_cast<std::size_t>(of)];
  if (left == 0 && waiting_ > 0) wake_waiting();
}

bool TrafficOrder::yields(TrafficClass of, TrafficDirection direction) const noexcept {
  const auto& classes = on_their_way_[index(direction)];
  return std::any_of(classes.begin(), classes.begin() + static_cast<int>(of),
                     [](const std::atomic<int>& count) { return count > 0; });
}

void TrafficOrder::wake_waiting() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& waiter : waiters_) {
    if (waiter->waiting) waiter->wake();
  }
}

double TrafficOrder::carried(TrafficDirection direction, double rate, Time now) {
  const std::lock_guard lock(mutex_);
  best_[index(direction)].add(rate, now);
  return best_[index(direction)].value(now);
}

double TrafficOrder::best_rate(TrafficDirection direction, Time now) const {
  const std::lock_guard lock(mutex_);
  return best_[index(direction)].value(now);
}

BoundaryTraffic::BoundaryTraffic(std::shared_ptr<TrafficOrder> order, TrafficDirection direction)
    : order_(std::move(order)), direction_(direction) {
  if (order_) ++order_->links_;
}

BoundaryTraffic::~BoundaryTraffic() {
  stop();
  if (order_) --order_->links_;
}

void BoundaryTraffic::begin(std::size_t bytes, Time now) {
  if (!order_ || stopped_ || bytes < kSmall) return;
  if (++messages_ == 1) tell(!limited_elsewhere(order_->best_rate(direction_, now), now));
}

void BoundaryTraffic::end(std::size_t bytes) {
  if (!order_ || stopped_ || bytes < kSmall) return;
  if (--messages_ == 0) tell(false);
}

void BoundaryTraffic::carried(const Arrival& arrival, Time now) {
  if (!order_ || stopped_ || arrival.busy.count() <= 0) return;
  const double rate = static_cast<double>(arrival.counted_bytes) / to_seconds(arrival.busy);
  best_.add(rate, now);
  const double port_rate = order_->carried(direction_, rate, now);
  tell(messages_ > 0 && !limited_elsewhere(port_rate, now));
}

void BoundaryTraffic::stop() {
  if (std::exchange(stopped_, true) || !order_) return;
  if (std::exchange(told_, false)) order_->end(TrafficClass::kBoundary, direction_);
}

bool BoundaryTraffic::limited_elsewhere(double port_rate, Time now) const {
  const double own = best_.value(now);
  return own > 0 && own < port_rate / 2;
}

void BoundaryTraffic::tell(bool on_their_way) {
  if (on_their_way == std::exchange(told_, on_their_way)) return;
  if (on_their_way) {
    order_->begin(TrafficClass::kBoundary, direction_);
  } else {
    order_->end(TrafficClass::kBoundary, direction_);
  }
}

BulkTraffic::BulkTraffic(std::shared_ptr<TrafficOrder> order, TrafficDirection direction,
                         std::function<void()> wake)
    : order_(std::move(order)),
      direction_(direction),
      waiter_(std::make_shared<TrafficOrder::Waiter>()) {
  waiter_->wake = std::move(wake);
  if (!order_) return;
  const std::lock_guard lock(order_->mutex_);
  order_->waiters_.push_back(waiter_);
}

BulkTraffic::~BulkTraffic() {
  stop();
}

void BulkTraffic::stop() {
  const auto order = std::exchange(order_, nullptr);
  if (!order) return;
  if (waiter_->waiting.exchange(false)) --order->waiting_;
  const std::lock_guard lock(order->mutex_);
  order->waiters_.remove(waiter_);
}

std::size_t BulkTraffic::allowance(TrafficClass of, Time now) {
  bool yields = order_ && order_->yields(of, direction_);
  if (yields) {
    // Looks again after it has said that it waits, so that no end in between is missed.
    wait(true, now);
    yields = order_->yields(of, direction_);
  }
  if (!yields) {
    wait(false, now);
    return kAll;
  }
  return now >= again_ ? kQuantum : 0;
}

void BulkTraffic::moved(std::size_t bytes, Time now) {
  if (!order_ || bytes == 0) return;
  const double rate = std::max(kLeastRate, kLeastShare * order_->best_rate(direction_, now));
  const nanoseconds time(static_cast<std::int64_t>(1e9 * static_cast<double>(bytes) / rate));
  again_ = std::min(std::max(again_, now) + time, now + kLongestWait);
}

void BulkTraffic::wait(bool waits, Time now) {
  if (waits == waiter_->waiting) return;
  waiter_->waiting = waits;
  if (waits) {
    ++order_->waiting_;
    since_ = now;
  } else {
    --order_->waiting_;
    waited_ += now - since_;
  }
}

int bulk_buffer_bytes(double rate, double round_trip_seconds, int segment, int connections) {
  constexpr double kMillisecond = 1e-3, kLeast = 16 * 1024, kMost = 64.0 * 1024 * 1024;
  constexpr double kShortPath = 0.5e-3;  // as in send_buffer.h
  if (rate <= 0) return 0;
  const double path = round_trip_seconds < kShortPath ? 0 : 2 * rate * round_trip_seconds;
  // Below two segments senders wait for delayed acknowledgements.
  const double all = std::max(kLeast, rate * kMillisecond + path);
  const double bytes = std::max(2.0 * segment, all / connections);
  return static_cast<int>(std::min(kMost, bytes));
}

}  // namespace weir::transport::tcp
