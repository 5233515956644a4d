// SPDX-License-Identifier: Apache-2.0
// Finds out how the transfers of one communicator spent their time, from the events of NCCL's
// profiler. At each moment a direction is in one state. It is on the network if at least one piece
// (step) of a message is there. Else it waits for the peer if a piece waits for the receiver's
// memory. Else it waits for the own GPU if a piece waits for its kernel. Has no clock of its own.
// Thread-safe. Allocates nothing after the constructor, because NCCL's threads call it for each
// piece.
//
// A receiver cannot distinguish a late sender from a slow network: its network time contains both.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "worker/transport/link_stats.h"

namespace weir::transport::nccl {

class CommProfile {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Waits : unsigned char { kNetwork, kPeer, kGpu };  // what a step waits for

  // One of NCCL's events, from its start to its stop. The profile owns the memory.
  class Event {
   public:
    CommProfile& profile() const { return *owner_; }

   private:
    friend class CommProfile;
    enum class Kind : unsigned char { kFree, kOp, kStep, kKernel };
    CommProfile* owner_ = nullptr;
    Kind kind_ = Kind::kFree;
    bool sending_ = false;
    std::optional<Waits> waits_;
    std::uint64_t gpu_start_ = 0;
  };

  CommProfile();
  CommProfile(const CommProfile&) = delete;
  CommProfile& operator=(const CommProfile&) = delete;

  // Return null if too many events are active; the event is then not counted.
  Event* start_op(bool sending);          // a proxy's part of a message on one channel
  Event* start_step(const Event& op);     // one piece of it
  Event* start_kernel(std::uint64_t at);  // on one channel; by the GPU's clock, ns
  // The step now waits for `what`. bytes: bytes that the step has passed to the network, else 0.
  // Repeating a call does nothing.
  void waits(Event& step, Waits what, Time now, std::size_t bytes = 0);
  void kernel_ends(Event& kernel, std::uint64_t at);
  void stop(Event& event, Time now);

  // Times until now, without events.
  TransferTimes sent(Time now) const { return times(0, now); }
  TransferTimes received(Time now) const { return times(1, now); }
  std::int64_t dropped() const;  // events that were not counted

 private:
  // NCCL has at most 8 steps of a sub-operation under way. It has as many sub-operations as
  // channels (at most 8 here), for some messages in a row.
  static constexpr std::size_t kEvents = 512;
  struct Direction {
    std::array<int, 3> steps{};  // number of waiting steps, by Waits
    std::optional<Time> since;   // time of the last change
    TransferTimes times;
  };

  Event* take(Event::Kind kind, bool sending);
  Direction& of(const Event& event) { return directions_[event.sending_ ? 0 : 1]; }
  static void account(Direction& direction, Time now);
  TransferTimes times(std::size_t direction, Time now) const;

  mutable std::mutex mutex_;  // guards the fields below
  std::array<Event, kEvents> events_;
  std::array<Direction, 2> directions_;  // sending, receiving
  std::size_t next_ = 0;                 // where the search for a free event begins
  std::int64_t dropped_ = 0;
  std::uint64_t kernel_end_ = 0;  // by the GPU's clock
  std::chrono::nanoseconds kernel_{0};
};

}  // namespace weir::transport::nccl
