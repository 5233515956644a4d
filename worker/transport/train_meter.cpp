// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/train_meter.h"

#include <algorithm>
#include <chrono>

namespace weir::transport {
namespace {

// Reading data that is already in the socket's buffer takes less time.
constexpr std::chrono::nanoseconds kAtOnce = std::chrono::microseconds(100);

}  // namespace

Arrival TrainMeter::add(const BusyMeter::Message& frame, bool follows) {
  if (frame.bytes <= 0) return {};
  if (follows && train_ &&
      frame.first - train_->last <= std::max(kAtOnce, (train_->last - train_->first) / 2)) {
    if (frame.first - train_->first <= kAtOnce) train_->first_bytes += frame.first_bytes;
    train_->bytes += frame.bytes;
    train_->last = frame.last;
  } else {
    train_ = frame;
    reported_ = {};
  }
  Arrival whole;
  if (train_->first_bytes <= train_->bytes / 2) whole = {train_->bytes, train_->whole_time()};
  const Arrival news{whole.counted_bytes - reported_.counted_bytes, whole.busy - reported_.busy};
  reported_ = whole;
  return news;
}

}  // namespace weir::transport
