// SPDX-License-Identifier: Apache-2.0
// The sending end of one link. A message is announced and launched only when its tensor is computed
// and the peer has granted a slot. So a send does not occupy a part of the GPU while it waits for
// either. Driver thread; any thread may call counters().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "worker/transport/link_stats.h"
#include "worker/transport/nccl/side_channel.h"
#include "worker/transport/nccl/watched_link.h"

namespace weir::transport::nccl {

class OutgoingStream {
 public:
  using Time = WatchedLink::Time;

  OutgoingStream(WatchedLink& link, SideChannel& side, const Limits& limits)
      : link_(link), side_(side), limits_(limits) {}

  // computed: done when the tensor is computed; null for a message in host memory.
  void post(device::Buffer buffer, std::size_t bytes, std::unique_ptr<Mark> computed);
  Status handle(const Record& record);  // kCredit, kTaken
  // Does everything that is possible now and appends completions to `done`. Returns true if the GPU
  // must be polled again.
  Result<bool> progress(Time now, std::vector<Completion>& done);
  bool owes() const { return !queue_.empty() || !in_flight_.empty(); }
  LinkCounters counters() const;

 private:
  struct Sent : Message {
    bool taken = false;  // by the peer
  };

  Result<bool> start_messages(Time now);
  void start(Sent message, Time now);
  void send_parts(const Sent& message);
  void note_waiting(Time now, bool waits);

  WatchedLink& link_;
  SideChannel& side_;
  const Limits& limits_;
  std::deque<Sent> queue_;      // not started
  std::deque<Sent> in_flight_;  // started; the front is message completed_
  std::uint64_t started_ = 0, taken_ = 0, completed_ = 0, granted_ = 0;

  mutable std::mutex counters_mutex_;  // guards counters_ and waiting_since_
  LinkCounters counters_;
  std::optional<Time> waiting_since_;  // start of waiting for a credit
};

}  // namespace weir::transport::nccl
