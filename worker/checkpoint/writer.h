// SPDX-License-Identifier: Apache-2.0
// The thread "checkpoint": does what blocks on a disk, in the order given. post() from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <thread>

#include "worker/base/bounded_queue.h"

namespace weir::checkpoint {

class Writer {
 public:
  Writer();
  ~Writer();  // ends after the task under way
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // False: too many wait; the disk does not keep up.
  bool post(std::function<void()> task);

 private:
  static constexpr std::size_t kMostTasks = 8;  // a save and a commit at a time, and a few late

  void run(const std::stop_token& stop);

  BoundedQueue<std::function<void()>> tasks_{kMostTasks};
  std::jthread thread_;
};

}  // namespace weir::checkpoint
