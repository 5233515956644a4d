// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/replica_group_traffic.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "worker/base/units.h"

namespace weir::transport::tcp {
namespace {

constexpr std::chrono::nanoseconds kNone{0};
constexpr std::int64_t kTimed = 64 * 1024;  // fewer bytes say nothing of a rate
constexpr int kSameSize = 4;                // a fourth more or less is not worth a change

}  // namespace

ReplicaGroupTraffic::ReplicaGroupTraffic(std::shared_ptr<TrafficOrder> order, int send_buffer_bytes,
                                         std::function<void()> wake)
    : order_(std::move(order)),
      in_(order_, TrafficDirection::kIn, wake),
      out_(order_, TrafficDirection::kOut, std::move(wake)),
      send_buffer_bytes_(send_buffer_bytes),
      send_buffer_(send_buffer_bytes) {}

void ReplicaGroupTraffic::stop() {
  going_on(false, false);
  in_.stop();
  out_.stop();
}

void ReplicaGroupTraffic::going_on(bool sums, bool background) {
  going_on_ = sums || background;
  class_ = sums || !background ? TrafficClass::kSums : TrafficClass::kBackground;
  if (!order_ || sums == std::exchange(sums_told_, sums)) return;
  for (const auto direction : {TrafficDirection::kOut, TrafficDirection::kIn}) {
    if (sums) {
      order_->begin(TrafficClass::kSums, direction);
    } else {
      order_->end(TrafficClass::kSums, direction);
    }
  }
}

void ReplicaGroupTraffic::wants_to_write(bool wants, Time now) {
  writes_ = wants;
  if (!wants) out_.idle(now);
  // Without an operation there is nothing to read but the header of a frame that must wait.
  if (!going_on_) in_.idle(now);
}

std::size_t ReplicaGroupTraffic::may_write(Time now) {
  if (!writes_) return BulkTraffic::kAll;
  // A socket takes a segment of 64 KiB beyond its buffer, if that is offered.
  const bool limited = send_buffer_ < send_buffer_bytes_;
  const std::size_t most = limited ? static_cast<std::size_t>(send_buffer_) : BulkTraffic::kAll;
  return std::min(most, out_.allowance(class_, now));
}

std::size_t ReplicaGroupTraffic::may_read(Time now) {
  return going_on_ ? in_.allowance(class_, now) : BulkTraffic::kAll;
}

ReplicaGroupTraffic::Time ReplicaGroupTraffic::again(Time now) const {
  Time next = Time::max();
  for (const BulkTraffic* one : {&in_, &out_}) {
    if (one->waits()) next = std::min(next, std::max(now, one->again()));
  }
  return next;
}

void ReplicaGroupTraffic::carried(std::int64_t bytes, std::chrono::nanoseconds busy,
                                  const std::vector<DataSocket*>& sockets, Time now) {
  if (!order_) return;
  if (bytes >= kTimed && busy.count() > 0) {
    const double rate = static_cast<double>(bytes) / to_seconds(busy);
    order_->carried(TrafficDirection::kOut, rate, now);
    order_->carried(TrafficDirection::kIn, rate, now);
  }
  size(sockets, now);
}

void ReplicaGroupTraffic::look(const std::vector<DataSocket*>& sockets) {
  std::optional<std::chrono::nanoseconds> longest;
  for (const DataSocket* socket : sockets)
    longest = std::max(longest, round_trip_of(socket->descriptor()));
  if (longest) round_trip_ = std::min(round_trip_.value_or(*longest), *longest);
}

// All connections share what the kernel may hold, so that little is ahead of a tensor.
void ReplicaGroupTraffic::size(const std::vector<DataSocket*>& sockets, Time now) {
  if (send_buffer_bytes_ <= 0 || sockets.empty() || !order_->has_links()) return;
  look(sockets);
  int segment = 0;
  for (const DataSocket* socket : sockets)
    segment = std::max(segment, segment_of(socket->descriptor()));
  const auto share = [&](TrafficDirection direction) {
    return bulk_buffer_bytes(order_->best_rate(direction, now),
                             to_seconds(round_trip_.value_or(kNone)), segment,
                             static_cast<int>(sockets.size()));
  };
  const auto change = [](int& present, int wanted) {
    if (std::abs(wanted - present) <= present / kSameSize) return false;
    present = wanted;
    return true;
  };
  const int out = share(TrafficDirection::kOut), in = share(TrafficDirection::kIn);
  if (out > 0 && change(send_buffer_, std::min(out, send_buffer_bytes_))) {
    for (DataSocket* socket : sockets) set_send_buffer(socket->descriptor(), send_buffer_);
  }
  if (in > 0 && change(receive_buffer_, in < send_buffer_bytes_ ? in : 0)) {
    for (DataSocket* socket : sockets) set_receive_buffer(socket->descriptor(), receive_buffer_);
  }
}

}  // namespace weir::transport::tcp
