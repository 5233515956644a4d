// SPDX-License-Identifier: Apache-2.0
// The order of a process's own traffic on its port: tensors between stages first, then sums, then
// what runs beside steps. Tensors move at once and only tell that they are on their way; the rest
// (bulk) asks before it moves bytes, and waits meanwhile. It is never shut out: it moves at least a
// sixteenth of what the port carries, and 64 KiB a second. Each direction has an order of its own:
// bulk that comes in waits in its senders, because it is not read.
// Nothing here looks at a clock.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "worker/transport/busy_meter.h"

namespace weir::transport::tcp {

// In their order.
enum class TrafficClass : unsigned char { kBoundary, kSums, kBackground };
enum class TrafficDirection : unsigned char { kOut, kIn };

// The best of the last 5 to 10 seconds.
class RecentBest {
 public:
  using Time = std::chrono::steady_clock::time_point;
  void add(double value, Time now);
  double value(Time now) const;  // 0: nothing was added

 private:
  static constexpr std::chrono::seconds kWindow{5};
  Time begin_{};
  double present_ = 0, before_ = 0;
};

// Any thread.
class TrafficOrder {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Traffic of a class is on its way; calls come in pairs.
  void begin(TrafficClass of, TrafficDirection direction) noexcept;
  void end(TrafficClass of, TrafficDirection direction) noexcept;
  // Whether an earlier class is on its way.
  bool yields(TrafficClass of, TrafficDirection direction) const noexcept;

  // Something passed the port at that rate, in bytes per second of busy time. Returns best_rate.
  double carried(TrafficDirection direction, double rate, Time now);
  double best_rate(TrafficDirection direction, Time now) const;  // lately; 0: unknown

  // Whether there are links between stages at all, and so something to yield to.
  bool has_links() const noexcept { return links_ > 0; }

 private:
  friend class BoundaryTraffic;
  friend class BulkTraffic;
  struct Waiter {
    std::atomic<bool> waiting = false;
    std::function<void()> wake;
  };
  static constexpr std::size_t kClasses = 3, kDirections = 2;

  static std::size_t index(TrafficDirection direction) {
    return static_cast<std::size_t>(direction);
  }
  void wake_waiting() noexcept;

  std::array<std::array<std::atomic<int>, kClasses>, kDirections> on_their_way_{};
  std::atomic<int> waiting_ = 0;  // waiters that wait
  std::atomic<int> links_ = 0;
  mutable std::mutex mutex_;  // guards the fields below
  std::list<std::shared_ptr<Waiter>> waiters_;
  std::array<RecentBest, kDirections> best_;
};

// The tensors of one end of a link. Under the mutex of the link.
class BoundaryTraffic {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Without an order it does nothing: links that are limited elsewhere have none.
  BoundaryTraffic(std::shared_ptr<TrafficOrder> order, TrafficDirection direction);
  ~BoundaryTraffic();
  BoundaryTraffic(const BoundaryTraffic&) = delete;
  BoundaryTraffic& operator=(const BoundaryTraffic&) = delete;

  // A message is on its way, or has arrived. Small ones are not worth a pause of others.
  void begin(std::size_t bytes, Time now);
  void end(std::size_t bytes);
  void carried(const Arrival& arrival, Time now);
  void stop();  // the link has ended, whatever was on its way

 private:
  // A link that carries less than half of what the port does is limited elsewhere. Waiting for it
  // would bring it nothing.
  bool limited_elsewhere(double port_rate, Time now) const;
  void tell(bool on_their_way);

  const std::shared_ptr<TrafficOrder> order_;
  const TrafficDirection direction_;
  RecentBest best_;
  int messages_ = 0;
  bool told_ = false, stopped_ = false;
};

// Tells a sender or a receiver of bulk how much may move. Used by one thread.
class BulkTraffic {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kQuantum = std::size_t{16} << 10U;  // while it yields
  static constexpr std::size_t kAll = std::size_t{1} << 40U;

  // `wake` is called on other threads when it need not wait any longer; must be short. Without an
  // order everything may move.
  BulkTraffic(std::shared_ptr<TrafficOrder> order, TrafficDirection direction,
              std::function<void()> wake);
  ~BulkTraffic();
  BulkTraffic(const BulkTraffic&) = delete;
  BulkTraffic& operator=(const BulkTraffic&) = delete;

  // Bytes that may move now. 0: ask again at the time of again(), or after a wake().
  std::size_t allowance(TrafficClass of, Time now);
  Time again() const { return again_; }
  void moved(std::size_t bytes, Time now);
  void idle(Time now) { wait(false, now); }  // there is nothing to move
  void stop();  // afterwards nothing waits, and no wake comes or is under way
  bool waits() const { return waiter_->waiting; }
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  void wait(bool waits, Time now);

  std::shared_ptr<TrafficOrder> order_;
  const TrafficDirection direction_;
  const std::shared_ptr<TrafficOrder::Waiter> waiter_;
  Time again_{}, since_{};
  std::chrono::nanoseconds waited_{0};
};

// Bytes that bulk traffic of a process may hold in the kernel in one direction, where they delay
// others: what the port carries in a millisecond, and what is on its way on a long path.
// `segment`: of the connection, in bytes. 0: nothing is known, so nothing is limited.
int bulk_buffer_bytes(double rate, double round_trip_seconds, int segment, int connections);

}  // namespace weir::transport::tcp
