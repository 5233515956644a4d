// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/staleness.h"

#include <algorithm>
#include <cstddef>

#include "worker/base/check.h"

namespace weir::groups {

double mixed_progress(std::span<const double> progress, std::span<const double> weights) {
  WEIR_CHECK(progress.size() == weights.size(), "one weight each");
  double mean = 0;
  for (std::size_t i = 0; i < progress.size(); ++i) mean += weights[i] * progress[i];
  return mean;
}

std::vector<bool> may_go_on(const std::vector<double>& groups, const std::vector<double>& others,
                            double max_staleness) {
  std::vector<bool> free;
  for (const double progress : groups) {
    double slowest = progress;
    for (const double other : groups) slowest = std::min(slowest, other);
    for (const double other : others) slowest = std::min(slowest, other);
    free.push_back(progress - slowest <= max_staleness);
  }
  return free;
}

}  // namespace weir::groups
