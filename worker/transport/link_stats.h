// SPDX-License-Identifier: Apache-2.0
// Counters of one link and direction, kept by the sender (worker/transport/README.md "Busy time"):
// goodput = bytes / busy. Written by the io thread, read by the exposer and the reporter.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace weir::transport {

// Upper bounds 100 us x 2^i, as weir_link_transfer_seconds; the last bucket is +Inf.
constexpr std::size_t kTransferBuckets = 17;

// How NCCL spent the time of messages at one end, by its own account (transport/nccl): at each
// moment the first that holds. All 0 but for kernel and events where both GPUs are reached without
// a network.
struct TransferTimes {
  std::chrono::nanoseconds network{0};  // a piece of a message was on its way
  std::chrono::nanoseconds peer{0};     // one waited for memory of the receiver
  std::chrono::nanoseconds gpu{0};      // one waited for this end's GPU
  std::int64_t bytes = 0;               // given to the network
  // As a cross-check, the time of NCCL's kernels: by the GPU's clock, and by CUDA events around
  // them.
  std::chrono::nanoseconds kernel{0}, events{0};
};

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
  std::optional<TransferTimes> nccl;  // of the sender; nothing: not by NCCL, or it does not tell
};

// One acknowledged transfer. Without counted bytes (it came in one piece) it is only a transfer.
void count_transfer(LinkCounters& counters, std::int64_t counted_bytes,
                    std::chrono::nanoseconds busy);

// The smallest of the last 16 round trips, so that one that waited behind data does not count.
class RoundTrips {
 public:
  void add(std::chrono::nanoseconds round_trip);
  double smallest_seconds() const;  // 0 = none yet

 private:
  static constexpr std::size_t kKept = 16;
  std::array<std::chrono::nanoseconds, kKept> trips_{};
  std::size_t count_ = 0;
};

}  // namespace weir::transport
