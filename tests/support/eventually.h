// SPDX-License-Identifier: Apache-2.0
// Waiting for what other threads or processes do.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace weir::test {

constexpr std::chrono::seconds kPatience{120};  // on a machine full of other work

// Asks each `poll` until the condition holds; false if it does not within the limit.
inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::steady_clock::duration limit = kPatience,
                       std::chrono::steady_clock::duration poll = std::chrono::milliseconds(5)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(poll);
  }
  return true;
}

}  // namespace weir::test
