// SPDX-License-Identifier: Apache-2.0
// A collective in the order of the process's traffic (traffic_order.h): what it may write and read,
// and how much of it may wait in the kernel. Used by the thread of the collective only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "worker/transport/tcp/data_socket.h"
#include "worker/transport/tcp/traffic_order.h"

namespace weir::transport::tcp {

class ReplicaGroupTraffic {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // send_buffer_bytes: of each socket where the port is fast; 0: the kernel's own, never changed.
  // Without an order nothing ever waits. `wake` as in BulkTraffic.
  ReplicaGroupTraffic(std::shared_ptr<TrafficOrder> order, int send_buffer_bytes,
                      std::function<void()> wake);
  ~ReplicaGroupTraffic() { stop(); }
  ReplicaGroupTraffic(const ReplicaGroupTraffic&) = delete;
  ReplicaGroupTraffic& operator=(const ReplicaGroupTraffic&) = delete;

  void stop();  // it moves nothing more; no wake comes afterwards
  // Notes how long the paths are; they are empty at the beginning.
  void look(const std::vector<DataSocket*>& sockets);
  // The operations that go on: sums, or such that run beside steps, or none.
  void going_on(bool sums, bool background);
  // Whether there is something to write. Then what may move at this time, in bytes; 0: later.
  void wants_to_write(bool wants, Time now);
  std::size_t may_write(Time now);
  std::size_t may_read(Time now);
  std::chrono::nanoseconds waited_to_write() const { return out_.waited(); }
  std::chrono::nanoseconds waited_to_read() const { return in_.waited(); }
  void wrote(std::size_t bytes, Time now) { out_.moved(bytes, now); }
  void read(std::size_t bytes, Time now) { in_.moved(bytes, now); }
  // The next time at which more may move without a wake.
  Time again(Time now) const;
  // An operation sent so many bytes in that time, and as many came in. Sizes the sockets by it.
  void carried(std::int64_t bytes, std::chrono::nanoseconds busy,
               const std::vector<DataSocket*>& sockets, Time now);

 private:
  void size(const std::vector<DataSocket*>& sockets, Time now);

  const std::shared_ptr<TrafficOrder> order_;
  BulkTraffic in_, out_;
  TrafficClass class_ = TrafficClass::kSums;
  bool going_on_ = false, writes_ = false;
  bool sums_told_ = false;                              // to the order
  std::optional<std::chrono::nanoseconds> round_trip_;  // the smallest, of the longest path
  const int send_buffer_bytes_;
  int send_buffer_, receive_buffer_ = 0;  // of each socket now; 0: the kernel's own
};

}  // namespace weir::transport::tcp
