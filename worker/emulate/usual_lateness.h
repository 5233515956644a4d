// SPDX-License-Identifier: Apache-2.0
// How much earlier a sleep must end so that it ends in time. Wake-ups come late, by about the same
// on a machine that has a core free: an op that slept until its deadline would take longer than the
// profile says, and a step of S + M - 1 of them, too. Pure; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace weir::emulate {

class UsualLateness {
 public:
  // The median of the last wake-ups; 0 until most of them have been seen, and never more than
  // kMost: a busy machine is later than that at times, and to spin for longer would make it busier.
  std::chrono::nanoseconds early() const {
    auto sorted = last_;
    const auto middle = sorted.begin() + kKept / 2;
    std::ranges::nth_element(sorted, middle);
    return std::clamp(*middle, std::chrono::nanoseconds(0), kMost);
  }
  // late: from the wanted time of a wake-up to the real one.
  void add(std::chrono::nanoseconds late) { last_[next_++ % kKept] = late; }

  static constexpr std::size_t kKept = 31;
  static constexpr std::chrono::nanoseconds kMost = std::chrono::milliseconds(1);

 private:
  std::array<std::chrono::nanoseconds, kKept> last_{};
  std::size_t next_ = 0;
};

}  // namespace weir::emulate
