// SPDX-License-Identifier: Apache-2.0
// The file of --emulate-slowness: emulated compute that is slow now and then. "step factor" lines:
// from that step on, counted from 1 by this process, each op takes so many times as long; or "1.5s
// factor" lines: from so many seconds after its first step on. '#' starts a comment. Immutable.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/result.h"

namespace weir::app {

class Slowness {
 public:
  // kInvalid "slow.txt:3: ...": not such a line, steps or times that do not rise or are mixed, a
  // factor that is not in (0, 1000].
  static Result<Slowness> read(const std::string& path);

  double factor(std::int64_t step, std::chrono::nanoseconds since_start) const;  // 1 at first

 private:
  bool by_time_ = false;
  std::vector<std::pair<double, double>> changes_;  // step or seconds, rising; factor
};

}  // namespace weir::app
