// SPDX-License-Identifier: Apache-2.0
// The thread "checkpoint": runs tasks that block on a disk, in the given order. Any thread may call
// post().
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
  ~Writer();  // waits for the running task
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Returns false if too many tasks wait because the disk is too slow.
  bool post(std::function<void()> task);

 private:
  // One save and one commit at a time, and a few late tasks.
  static constexpr std::size_t kMostTasks = 8;

  void run(const std::stop_token& stop);

  BoundedQueue<std::function<void()>> tasks_{kMostTasks};
  std::jthread thread_;
};

}  // namespace weir::checkpoint
