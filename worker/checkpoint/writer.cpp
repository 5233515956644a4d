// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/writer.h"

#include <chrono>
#include <pthread.h>
#include <utility>

namespace weir::checkpoint {

Writer::Writer()
    : thread_([this](const std::stop_token& stop) {
        pthread_setname_np(pthread_self(), "checkpoint");
        run(stop);
      }) {}

Writer::~Writer() {
  tasks_.close();
  thread_.request_stop();
}

bool Writer::post(std::function<void()> task) {
  return tasks_.try_push(std::move(task));
}

void Writer::run(const std::stop_token& stop) {
  constexpr std::chrono::hours kLong{1};
  while (!stop.stop_requested()) {
    if (const auto task = tasks_.pop(std::chrono::steady_clock::now() + kLong, stop)) (*task)();
  }
}

}  // namespace weir::checkpoint
