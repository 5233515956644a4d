// SPDX-License-Identifier: Apache-2.0
// The queue of keys to reconcile, with the rules of client-go's util/workqueue: a key waits once,
// is never handed to two threads, and comes back if it was added while being worked on. Retries
// back off 5 ms x 2^n up to 300 s. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>

#include "worker/base/clock.h"

namespace weir::controller {

// What dashboards of client-go's queues show; each may be empty. Called without the lock.
struct QueueCallbacks {
  std::function<void()> added, retried;
  std::function<void(std::chrono::nanoseconds)> waited, worked;  // before and in reconcile
};
// Work that has not ended yet: the sum of its ages, and the oldest one.
struct Unfinished {
  std::chrono::nanoseconds sum{0}, longest{0};
};

class WorkQueue {
 public:
  explicit WorkQueue(Clock& clock, QueueCallbacks callbacks = {})
      : clock_(clock), callbacks_(std::move(callbacks)) {}

  void add(const std::string& key, bool low_priority = false);
  // As add, but a key that is worked on, or was a moment ago, waits 0.1 s for what else comes: the
  // pods of a job change in bursts. A change after a pause is not delayed.
  void add_gathering(const std::string& key, bool low_priority = false);
  // Keeps the earliest time if the key waits already.
  void add_after(const std::string& key, std::chrono::nanoseconds delay);
  void add_rate_limited(const std::string& key);
  void forget(const std::string& key);  // success: back-off starts anew
  int failures(const std::string& key) const;

  // Waits for a key, moves it to "being worked on". Nothing after stop or shut_down.
  std::optional<std::string> get(std::stop_token stop);
  std::optional<std::string> try_get();
  void done(const std::string& key);

  // No more keys are handed out.
  void shut_down();
  std::size_t depth() const;  // ready, not yet handed out
  Unfinished unfinished() const;

 private:
  bool add_locked(const std::string& key, bool low_priority);  // true: it was not there yet
  int move_due_locked();                                       // answers how many keys it added
  std::optional<std::string> take_locked(int& added, std::chrono::nanoseconds& waited);
  bool has_ready_locked() const;
  void wake_one_locked();

  void tell_added(int count) const;

  Clock& clock_;
  const QueueCallbacks callbacks_;
  mutable std::mutex mutex_;  // guards all below
  // One idle thread watches the clock and waits on earlier_; the others sleep until there is a key,
  // or the watch to take over: a due time wakes one thread, not all.
  std::condition_variable_any earlier_, changed_;
  bool watched_ = false;
  int idle_ = 0;  // threads that wait on changed_
  std::deque<std::string> ready_, ready_low_;
  std::map<std::string, SteadyTime> dirty_;       // since when they wait
  std::map<std::string, SteadyTime> processing_;  // since when they are worked on
  std::map<std::string, SteadyTime> later_;
  std::set<std::pair<SteadyTime, std::string>> due_;       // the same, by time
  std::deque<std::pair<SteadyTime, std::string>> rested_;  // keys done in the last moment, by time
  std::map<std::string, int> failures_;
  bool down_ = false;
};

}  // namespace weir::controller
