// SPDX-License-Identifier: Apache-2.0
// The receiver's rule for the busy time of one (link, direction): how long the network needed for a
// message, from differences of the receiver's clock only. A late receiver or an idle pipeline never
// counts. One per receiving link, used by the io thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace weir::transport {

// What a message says about the rate of the link; both 0 when it says nothing.
struct Arrival {
  std::int64_t counted_bytes = 0;
  std::chrono::nanoseconds busy{0};
};

class BusyMeter {
 public:
  struct Message {
    std::int64_t bytes = 0;  // n
    std::int64_t first_bytes =
        0;  // n1: read by first, when one non-blocking read took what was there
    std::chrono::steady_clock::time_point first, last;  // t_first, t_last

    // c = (last - first) n / (n - n1), of the whole message at the rate seen; 0 when all came with
    // the first read.
    std::chrono::nanoseconds whole_time() const;
  };

  // Messages in the order of their arrival. With gap = first - last of the message before and
  // c = whole_time():
  //   gap < min(1 ms, c / 10)   busy = last - last of the message before: back to back, all n count
  //   else n1 <= n / 2          busy = c: the first read has no duration, it is scaled away
  //   else                      nothing counts: it came in one piece and says nothing of the rate
  // Source: measured against links of known rate, +-1.3 % for c >= 1 ms. O(1).
  Arrival add(const Message& message);

 private:
  std::optional<std::chrono::steady_clock::time_point> last_;  // of the message before
};

}  // namespace weir::transport
