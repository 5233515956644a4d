// SPDX-License-Identifier: Apache-2.0
// How the time of one communicator's transfers was spent, from the events of NCCL's profiler: at
// each moment of a direction, on the network if at least one piece (step) of a message is there;
// else waiting for the peer, if one waits for the receiver's memory; else for the own GPU, if one
// waits for its kernel. No clock of its own. Thread-safe; nothing is allocated after the
// constructor, as NCCL's threads call it for each piece.
//
// A receiver cannot tell a late sender from a slow network: its network time contains both.
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

  // One of NCCL's events, from its start to its stop; memory of the profile.
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

  // Null: too many at once, this one is not counted.
  Event* start_op(bool sending);          // a proxy's part of a message on one channel
  Event* start_step(const Event& op);     // one piece of it
  Event* start_kernel(std::uint64_t at);  // on one channel; by the GPU's clock, ns
  // bytes: of a step that has been given to the network, else 0. Once more the same: nothing.
  void waits(Event& step, Waits what, Time now, std::size_t bytes = 0);
  void kernel_ends(Event& kernel, std::uint64_t at);
  void stop(Event& event, Time now);

  // Until now; events: nothing.
  TransferTimes sent(Time now) const { return times(0, now); }
  TransferTimes received(Time now) const { return times(1, now); }
  std::int64_t dropped() const;  // events that were not counted

 private:
  // NCCL has at most 8 steps of a sub-operation under way, and as many as it has channels (here at
  // most 8) of those, for some messages in a row.
  static constexpr std::size_t kEvents = 512;
  struct Direction {
    std::array<int, 3> steps{};  // that wait, by Waits
    std::optional<Time> since;   // the last change
    TransferTimes times;
  };

  Event* take(Event::Kind kind, bool sending);
  Direction& of(const Event& event) { return directions_[event.sending_ ? 0 : 1]; }
  static void account(Direction& direction, Time now);
  TransferTimes times(std::size_t direction, Time now) const;

  mutable std::mutex mutex_;  // guards all below
  std::array<Event, kEvents> events_;
  std::array<Direction, 2> directions_;  // sending, receiving
  std::size_t next_ = 0;                 // where a free event is looked for
  std::int64_t dropped_ = 0;
  std::uint64_t kernel_end_ = 0;  // of the GPU's clock
  std::chrono::nanoseconds kernel_{0};
};

}  // namespace weir::transport::nccl
