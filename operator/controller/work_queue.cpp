// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/work_queue.h"

#include <algorithm>

namespace weir::controller {
namespace {

constexpr std::chrono::milliseconds kBackOff{5};
constexpr std::chrono::seconds kBackOffCap{300};
constexpr int kMaxDoublings = 16;  // 5 ms x 2^16 is above the cap
constexpr std::chrono::seconds kIdleWait{1};
constexpr std::chrono::milliseconds kGather{100};

}  // namespace

void WorkQueue::add(const std::string& key, bool low_priority) {
  bool fresh = false;
  {
    const std::lock_guard lock(mutex_);
    fresh = add_locked(key, low_priority);
    if (fresh) wake_one_locked();
  }
  report_added(fresh ? 1 : 0);
}

void WorkQueue::add_gathering(const std::string& key, bool low_priority) {
  std::chrono::nanoseconds left{0};
  {
    const std::lock_guard lock(mutex_);
    const auto rested = std::find_if(rested_.rbegin(), rested_.rend(),
                                     [&](const auto& entry) { return entry.second == key; });
    if (processing_.contains(key)) {
      left = kGather;
    } else if (rested != rested_.rend()) {
      left = rested->first + kGather - clock_.now();
    }
  }
  if (left.count() > 0) return add_after(key, left);
  add(key, low_priority);
}

void WorkQueue::report_added(int count) const {
  for (; callbacks_.added && count > 0; --count) callbacks_.added();
}

bool WorkQueue::add_locked(const std::string& key, bool low_priority) {
  if (down_) return false;
  if (!dirty_.try_emplace(key, clock_.now()).second) {
    // A change has priority over keys of the first list.
    const auto waiting = std::ranges::find(ready_low_, key);
    if (!low_priority && waiting != ready_low_.end()) {
      ready_low_.erase(waiting);
      ready_.push_back(key);
    }
    return false;
  }
  if (!processing_.contains(key)) (low_priority ? ready_low_ : ready_).push_back(key);
  return true;
}

void WorkQueue::add_after(const std::string& key, std::chrono::nanoseconds delay) {
  if (delay.count() <= 0) return add(key);
  {
    const std::lock_guard lock(mutex_);
    if (down_) return;
    const SteadyTime at = clock_.now() + std::chrono::duration_cast<SteadyTime::duration>(delay);
    const auto [known, fresh] = later_.try_emplace(key, at);
    if (!fresh) {
      if (known->second <= at) return;
      due_.erase({known->second, key});
      known->second = at;
    }
    const auto place = due_.emplace(at, key).first;
    if (place != due_.begin()) return;  // a thread watches for an earlier key
  }
  earlier_.notify_one();
}

void WorkQueue::add_rate_limited(const std::string& key) {
  std::chrono::milliseconds delay;
  {
    const std::lock_guard lock(mutex_);
    int& count = failures_[key];
    delay = std::min<std::chrono::milliseconds>(kBackOff * (1LL << std::min(count, kMaxDoublings)),
                                                kBackOffCap);
    ++count;
  }
  if (callbacks_.retried) callbacks_.retried();
  add_after(key, delay);
}

void WorkQueue::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  failures_.erase(key);
}

int WorkQueue::failures(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

int WorkQueue::move_due_locked() {
  const SteadyTime now = clock_.now();
  int added = 0;
  while (!due_.empty() && due_.begin()->first <= now) {
    const std::string key = std::move(due_.extract(due_.begin()).value().second);
    later_.erase(key);
    added += add_locked(key, false) ? 1 : 0;
  }
  return added;
}

bool WorkQueue::has_ready_locked() const {
  return !ready_.empty() || !ready_low_.empty();
}

// A thread that takes a key wakes the next thread if there is more to do, so one is enough.
void WorkQueue::wake_one_locked() {
  (idle_ > 0 ? changed_ : earlier_).notify_one();
}

std::optional<std::string> WorkQueue::take_locked(int& added, std::chrono::nanoseconds& waited) {
  if (down_) return std::nullopt;
  added += move_due_locked();
  std::deque<std::string>& from = ready_.empty() ? ready_low_ : ready_;
  if (from.empty()) return std::nullopt;
  std::string key = std::move(from.front());
  from.pop_front();
  const SteadyTime now = clock_.now();
  waited = now - dirty_.at(key);
  dirty_.erase(key);
  processing_.emplace(key, now);
  return key;
}

std::optional<std::string> WorkQueue::try_get() {
  int added = 0;
  std::chrono::nanoseconds waited{0};
  std::optional<std::string> key;
  {
    const std::lock_guard lock(mutex_);
    key = take_locked(added, waited);
  }
  report_added(added);
  if (key && callbacks_.waited) callbacks_.waited(waited);
  return key;
}

std::optional<std::string> WorkQueue::get(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested() && !down_) {
    int added = 0;
    std::chrono::nanoseconds waited{0};
    if (auto key = take_locked(added, waited)) {
      if (has_ready_locked() || !watched_) wake_one_locked();
      lock.unlock();
      report_added(added);
      if (callbacks_.waited) callbacks_.waited(waited);
      return key;
    }
    if (watched_) {
      ++idle_;
      changed_.wait(lock, stop, [this] { return down_ || !watched_ || has_ready_locked(); });
      --idle_;
      continue;
    }
    watched_ = true;
    SteadyTime next = clock_.now() + kIdleWait;
    if (!due_.empty()) next = std::min(next, due_.begin()->first);
    earlier_.wait_until(lock, stop, next, [this, next] {
      const bool sooner = !due_.empty() && due_.begin()->first < next;
      return down_ || sooner || has_ready_locked();
    });
    watched_ = false;
  }
  return std::nullopt;
}

void WorkQueue::done(const std::string& key) {
  std::chrono::nanoseconds worked{0};
  {
    const std::lock_guard lock(mutex_);
    const auto begun = processing_.find(key);
    const SteadyTime now = clock_.now();
    if (begun != processing_.end()) {
      worked = now - begun->second;
      processing_.erase(begun);
    }
    rested_.emplace_back(now, key);
    while (rested_.front().first + kGather <= now) rested_.pop_front();
    if (dirty_.contains(key)) {
      ready_.push_back(key);
      wake_one_locked();
    }
  }
  if (callbacks_.worked) callbacks_.worked(worked);
}

Unfinished WorkQueue::unfinished() const {
  const std::lock_guard lock(mutex_);
  Unfinished out;
  for (const auto& [key, since] : processing_) {
    const std::chrono::nanoseconds age = clock_.now() - since;
    out.sum += age;
    out.longest = std::max(out.longest, age);
  }
  return out;
}

void WorkQueue::shut_down() {
  {
    const std::lock_guard lock(mutex_);
    down_ = true;
  }
  changed_.notify_all();
  earlier_.notify_all();
}

std::size_t WorkQueue::depth() const {
  const std::lock_guard lock(mutex_);
  return ready_.size() + ready_low_.size();
}

}  // namespace weir::controller
