// SPDX-License-Identifier: Apache-2.0
// The io thread of a transport: it owns all sockets, timers and link state, and never blocks.
#pragma once

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "worker/base/check.h"

namespace weir::transport::tcp {

class IoThread {
 public:
  IoThread();
  ~IoThread();  // stops and joins; must not be called from a handler
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  boost::asio::io_context& context() { return context_; }

  // Runs the function on the io thread and waits for its result. Only for other threads.
  template <class Function>
  auto call(Function function) {
    using Value = decltype(function());
    std::packaged_task<Value()> task(std::move(function));
    auto result = task.get_future();
    boost::asio::post(context_, [&task] { task(); });
    // `task` is on this stack, so returning early would be worse than aborting. Handlers take < 1
    // ms.
    WEIR_CHECK(result.wait_for(kLongestCall) == std::future_status::ready, "io thread is stuck");
    return result.get();
  }

 private:
  static constexpr std::chrono::seconds kLongestCall{30};

  boost::asio::io_context context_{1};  // run by one thread
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::jthread thread_;
};

}  // namespace weir::transport::tcp
