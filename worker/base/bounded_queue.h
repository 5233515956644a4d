// SPDX-License-Identifier: Apache-2.0
// A bounded queue between threads, for any number of producers and consumers. Waits take a deadline
// and a stop token.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

namespace weir {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  // Returns false if the queue is full or closed. The caller decides what a lost item means.
  bool try_push(T item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    filled_.notify_one();
    return true;
  }

  // Returns nothing at the deadline, after a stop request, and if the queue is closed and empty.
  std::optional<T> pop(std::chrono::steady_clock::time_point deadline, std::stop_token stop) {
    std::unique_lock lock(mutex_);
    filled_.wait_until(lock, stop, deadline, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    filled_.notify_all();
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;  // guards items_ and closed_
  std::condition_variable_any filled_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace weir
