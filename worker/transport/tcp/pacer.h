// SPDX-License-Identifier: Apache-2.0
// Limits a link in user space: a virtual clock per (link, direction). A chunk may be written when
// the clock has passed its end. So the last byte of a message leaves exactly at start + bytes /
// rate, there are no bursts, and oversleeping does not add up within a message. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include "worker/transport/tcp/tcp_transport.h"

namespace weir::transport::tcp {

class Pacer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `start`: begin of the trace. pacing.bytes_per_second > 0.
  Pacer(Pacing pacing, Time start);

  // A message of `bytes` is now the first in the queue.
  void begin(Time now, std::size_t bytes);
  // The next chunk of the message: its size, and the time from which on it may be written. A
  // message has at least kChunks chunks. None takes longer than kLongestChunk at the rate at its
  // beginning, so that the peer is never without data for too long.
  struct Chunk {
    std::size_t bytes = 0;
    Time at;
  };
  Chunk next();

  // Time at which `bytes` that start at `from` have passed under the trace. Public for tests.
  Time finish(Time from, double bytes) const;

 private:
  double share_at(Time time) const;

  Pacing pacing_;
  Time start_;
  Time free_{};
  std::size_t left_ = 0;
  std::size_t chunk_ = 0;
};

}  // namespace weir::transport::tcp
