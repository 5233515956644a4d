// SPDX-License-Identifier: Apache-2.0
// Counters of one link and direction, kept by the sender (worker/transport/README.md "Busy time"):
// goodput = bytes / busy. Written by the io thread; read by the exposer and the reporter.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace weir::transport {

// Buckets with upper bounds 100 us x 2^i, as in weir_link_transfer_seconds. The last bucket is
// +Inf.
constexpr std::size_t kTransferBuckets = 17;

// How NCCL spent the time of messages at one end, as NCCL reports it (transport/nccl). At each
// moment the first state that applies counts. If both GPUs are connected without a network, all are
// 0 except kernel and events.
struct TransferTimes {
  std::chrono::nanoseconds network{0};  // a piece of a message was under way
  std::chrono::nanoseconds peer{0};     // a piece waited for memory of the receiver
  std::chrono::nanoseconds gpu{0};      // a piece waited for this end's GPU
  std::int64_t bytes = 0;               // passed to the network
  // For comparison, the time of NCCL's kernels: by the GPU's clock, and by CUDA events around them.
  std::chrono::nanoseconds kernel{0}, events{0};
};

// Trials of another number of connections, by their result.
struct ConnectionProbes {
  std::int64_t raised = 0, lowered = 0, kept = 0;
  std::int64_t shared = 0;  // more carried more, but on a port that others use, too
};

struct LinkCounters {
  std::int64_t bytes = 0;            // payload of the transfers that `busy` covers
  std::chrono::nanoseconds busy{0};  // timed by the receiver, returned in its acknowledgement
  // A message was ready but the peer had granted no slot; this is no network time.
  std::chrono::nanoseconds credit_wait{0};
  std::int64_t transfers = 0;  // all acknowledged transfers
  int connections = 1;         // that share its messages
  ConnectionProbes connection_probes;
  // Histogram of the receiver's busy time, not cumulative.
  std::array<std::int64_t, kTransferBuckets> histogram{};
  double transfer_seconds_sum = 0;
  // Minimum of the last 16 small round trips (credit/ack/ping); 0 = unknown.
  double rtt_seconds = 0;
  // Times of the sender; nothing if the link does not use NCCL or NCCL does not report it.
  std::optional<TransferTimes> nccl;
};

// Counts one acknowledged transfer. If it came at once and has no counted bytes, only the number of
// transfers grows.
void count_transfer(LinkCounters& counters, std::int64_t counted_bytes,
                    std::chrono::nanoseconds busy);

// The minimum of the last 16 round trips, so that round trips that waited behind data do not count.
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
