// SPDX-License-Identifier: Apache-2.0
// The receiving end of one link. It grants a slot when nothing on the GPU uses the slot's memory
// any longer, and launches the receive when the sender has announced the message. It times messages
// by events with the same rule as TCP (busy_meter.h). Driver thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "worker/transport/busy_meter.h"
#include "worker/transport/nccl/side_channel.h"
#include "worker/transport/nccl/watched_link.h"

namespace weir::transport::nccl {

class IncomingStream {
 public:
  using Time = WatchedLink::Time;

  IncomingStream(WatchedLink& link, SideChannel& side, const Limits& limits)
      : link_(link), side_(side), limits_(limits) {}

  // free: done when no op uses the memory any longer; null for host memory.
  void post(device::Buffer buffer, std::size_t bytes, std::unique_ptr<Mark> free);
  Status handle(const Record& record);  // kAnnounce, kHost
  // Does everything that is possible now and appends completions to `done`. Returns true if the GPU
  // must be polled again.
  Result<bool> progress(Time now, std::vector<Completion>& done);
  // True if a message has begun and has not arrived completely.
  bool awaits() const { return announced_ > completed_ || part_ > 0; }

 private:
  struct Slot : Message {
    Arrival arrival;  // what it tells about the rate
  };

  Slot& slot(std::uint64_t sequence) {
    return slots_[static_cast<std::size_t>(sequence - completed_)];
  }
  Status take_part(Slot& slot, const Record& record);
  Result<bool> grant();
  void note_arrival(Slot& slot, const Timing& timing);
  LinkEnd answer_end() const;

  WatchedLink& link_;
  SideChannel& side_;
  const Limits& limits_;
  std::deque<Slot> slots_;  // the front is message completed_
  std::uint64_t granted_ = 0, announced_ = 0, completed_ = 0;
  std::size_t part_ = 0;  // bytes of message announced_ that have come as parts
  BusyMeter meter_;
  Time link_time_{};  // by the events: end of the last message
};

}  // namespace weir::transport::nccl
