// SPDX-License-Identifier: Apache-2.0
// A limited link in user space: a virtual clock per (link, direction). A chunk may be written when
// the clock has passed its end, so the last byte of a message leaves at start + bytes / rate
// exactly, there is no burst, and oversleeping does not add up inside a message. Pure.
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

  // `start`: when the trace begins. pacing.bytes_per_second > 0.
  Pacer(Pacing pacing, Time start);

  // A message of `bytes` is first in the queue now.
  void begin(Time now, std::size_t bytes);
  // The next part of it: how many bytes, and from when on they may be written. At least
  // kChunks parts a message, none longer than kLongestChunk at the rate of its beginning, so that
  // the peer hears something within its limit of silence.
  struct Chunk {
    std::size_t bytes = 0;
    Time at;
  };
  Chunk next();

  // When `bytes` that start at `from` have passed, under the trace. Exposed for tests.
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
