// SPDX-License-Identifier: Apache-2.0
// How much a link may hold in the kernel. With little, credits and acknowledgements of the other
// direction do not queue behind data; on a long path a connection then waits for acknowledgements.
// Pure.
#pragma once

#include <algorithm>

namespace weir::transport::tcp {

// One of several connections. Less than a segment of the loopback device makes senders wait for
// delayed acknowledgements.
constexpr int kLeastSendBuffer = 64 * 1024;

// The part of one of the connections that share the buffer of a link.
constexpr int share_of_buffer(int bytes, int connections) {
  return std::max(bytes / connections, std::min(kLeastSendBuffer, bytes));
}

// Bytes for a link whose messages travel at that rate, with that smallest round trip, in seconds; 0
// if either is unknown. Twice what is on its way, so that a rate that the buffer itself limits
// grows from look to look. Paths inside a rack keep `least`, which carries 9 Gbit/s at 0.2 ms.
constexpr int send_buffer_bytes(double bytes_per_second, double round_trip, int least) {
  constexpr double kShortPath = 0.5e-3;
  constexpr double kMost = 64.0 * 1024 * 1024;
  if (least <= 0 || round_trip < kShortPath) return least;
  return std::max(least, static_cast<int>(std::min(kMost, 2 * bytes_per_second * round_trip)));
}

}  // namespace weir::transport::tcp
