// SPDX-License-Identifier: Apache-2.0
// The queue of keys to reconcile, with the rules of client-go's util/workqueue: a key is in the
// queue at most once, is never given to two threads, and comes back if it was added while a thread
// worked on it. Retries back off 5 ms x 2^n up to 300 s. Thread-safe.
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

// For metrics as those of client-go's queues. Each may be empty. Called without the lock.
struct QueueCallbacks {
  std::function<void()> added, retried;
  std::function<void(std::chrono::nanoseconds)> waited, worked;  // time in the queue, in reconcile
};
// Ages of the passes in progress: their sum and the largest.
struct Unfinished {
  std::chrono::nanoseconds sum{0}, longest{0};
};

class WorkQueue {
 public:
  explicit WorkQueue(Clock& clock, QueueCallbacks callbacks = {})
      : clock_(clock), callbacks_(std::move(callbacks)) {}

  void add(const std::string& key, bool low_priority = false);
  // As add, but if a thread works on the key, or did a moment ago, the key waits 0.1 s to gather
  // further changes, because the pods of a job change in bursts. A change after a pause is not
  // delayed.
  void add_gathering(const std::string& key, bool low_priority = false);
  // If the key already waits for a time, the earlier time counts.
  void add_after(const std::string& key, std::chrono::nanoseconds delay);
  void add_rate_limited(const std::string& key);
  void forget(const std::string& key);  // call it after success; the back-off starts again
  int failures(const std::string& key) const;

  // Waits for a key and takes it; call done() after the work. Nothing after stop or shut_down.
  std::optional<std::string> get(std::stop_token stop);
  std::optional<std::string> try_get();
  void done(const std::string& key);

  // After this call get() returns no more keys.
  void shut_down();
  std::size_t depth() const;  // keys that are ready and not yet taken
  Unfinished unfinished() const;

 private:
  bool add_locked(const std::string& key, bool low_priority);  // true = the key was not queued
  int move_due_locked();                                       // returns how many keys it added
  std::optional<std::string> take_locked(int& added, std::chrono::nanoseconds& waited);
  bool has_ready_locked() const;
  void wake_one_locked();

  void report_added(int count) const;

  Clock& clock_;
  const QueueCallbacks callbacks_;
  mutable std::mutex mutex_;  // guards all below
  // One idle thread watches the clock and waits on earlier_. The others wait on changed_ until
  // there is a key, or until one must take over the watch. So a due time wakes one thread, not all.
  std::condition_variable_any earlier_, changed_;
  bool watched_ = false;
  int idle_ = 0;  // threads that wait on changed_
  std::deque<std::string> ready_, ready_low_;
  std::map<std::string, SteadyTime> dirty_;       // waiting keys, and since when
  std::map<std::string, SteadyTime> processing_;  // keys that threads work on, and since when
  std::map<std::string, SteadyTime> later_;
  std::set<std::pair<SteadyTime, std::string>> due_;       // later_ in order of time
  std::deque<std::pair<SteadyTime, std::string>> rested_;  // keys done in the last 0.1 s, by time
  std::map<std::string, int> failures_;
  bool down_ = false;
};

}  // namespace weir::controller
