// SPDX-License-Identifier: Apache-2.0
// The file of --emulate-slowness, which slows emulated compute down from time to time. A line "step
// factor" means: from that step on, counted from 1 in this process, each op takes `factor` times as
// long. A line "1.5s factor" means the same from 1.5 s after the first step on. '#' starts a
// comment. Immutable.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/result.h"

namespace weir::emulate {

class Slowness {
 public:
  // kInvalid, e.g. "slow.txt:3: ...": a line of another form, steps or times that do not rise or
  // are mixed, or a factor outside of (0, 1000].
  static Result<Slowness> read(const std::string& path);

  // 1 before the first line.
  double factor(std::int64_t step, std::chrono::nanoseconds since_start) const;

 private:
  bool by_time_ = false;
  std::vector<std::pair<double, double>> changes_;  // step or seconds, rising; factor
};

}  // namespace weir::emulate
