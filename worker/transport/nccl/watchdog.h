// SPDX-License-Identifier: Apache-2.0
// Checks every second whether a communicator of the generation is broken, a message is overdue or
// the driver is stuck inside NCCL. Only the watchdog aborts, and it aborts all communicators
// together. Has a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/base/bounded_queue.h"
#include "worker/base/result.h"
#include "worker/transport/nccl/watched.h"

namespace weir::transport::nccl {

class Watchdog {
 public:
  struct Callbacks {
    // The argument is the index in `watched`.
    std::function<bool(std::size_t)> may_end;              // the peer has left or will leave
    std::function<void(std::size_t, std::string)> failed;  // reports a failure that it has found
    std::function<void()> ends;  // called just before it aborts; it checks no longer
  };

  Watchdog(NcclApi& api, std::vector<Watched*> watched, const Limits& limits, Callbacks callbacks);
  ~Watchdog() { end(); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // A communicator that is not watched but aborted with the others. It belongs to the driver, which
  // may abort it itself before or after removing it.
  void add(NcclComm& comm);
  void remove(NcclComm& comm);
  void abort() { wakes_.try_push(Unit{}); }  // soon, on its own thread; any thread may call
  void end();  // aborts unless it has done so, and joins; must not be called from a callback

  // The driver holds this while it uses the communicators. False: they have been aborted.
  class Use {
   public:
    explicit Use(Watchdog& dog) : dog_(dog), lock_(dog.use_mutex_) { dog_.driver_in(); }
    ~Use() { dog_.in_since_ = 0; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return !dog_.aborted_; }

   private:
    Watchdog& dog_;
    const std::lock_guard<std::mutex> lock_;
  };

 private:
  using Time = Watched::Time;
  struct Finding {
    std::size_t index = 0;
    std::string reason;
  };

  void run();
  std::optional<Finding> look(Time now);
  void abort_all();
  void driver_in() { in_since_ = std::chrono::steady_clock::now().time_since_epoch().count(); }

  NcclApi& api_;
  const std::vector<Watched*> watched_;
  const Limits& limits_;
  const Callbacks callbacks_;
  BoundedQueue<Unit> wakes_{1};
  std::mutex more_mutex_;  // guards more_; taken while holding use_mutex_
  std::vector<NcclComm*> more_;
  std::mutex use_mutex_;  // guards the communicators except for ready()
  std::atomic<bool> aborted_ = false;
  std::atomic<Time::rep> in_since_{0};  // since when the driver has used them; 0 = it does not
  std::jthread thread_;
};

}  // namespace weir::transport::nccl
