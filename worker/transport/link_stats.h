// SPDX-License-Identifier: Apache-2.0
// Counters of one link and direction, kept by the sender (measuring.md 4): goodput = bytes / busy.
// Written by the transport's io thread, read by the exposer and the reporter.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

namespace weir::transport {

// Upper bounds 100 us x 2^i, as weir_link_transfer_seconds; the last bucket is +Inf.
constexpr std::size_t kTransferBuckets = 17;

struct LinkCounters {
  std::int64_t bytes = 0;            // payload of the transfers that busy is about
  std::chrono::nanoseconds busy{0};  // timed by the receiver, echoed in its acknowledgement
  std::chrono::nanoseconds credit_wait{
      0};  // a message was ready, the peer had granted no slot: not network time
  std::int64_t transfers = 0;  // all acknowledged ones
  std::array<std::int64_t, kTransferBuckets>
      histogram{};  // of the receiver's busy time, not cumulative
  double transfer_seconds_sum = 0;
  double rtt_seconds =
      0;  // smallest of the last 16 small round trips (credit/ack/ping), 0 = unknown
};

}  // namespace weir::transport
