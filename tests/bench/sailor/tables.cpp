// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/sailor/tables.h"

#include <algorithm>
#include <limits>

namespace weir::planner {

using Index = std::size_t;

SailorTables::SailorTables(const SailorProblem& problem, const SailorCosts& costs, int size)
    : micro_batch(size), layers(costs.layers()) {
  for (Index device = 0; device < problem.devices.size(); ++device) {
    for (const auto& [key, times] : problem.devices[device].times.entries) {
      const SailorOption option{static_cast<int>(device), key.second};
      if (key.first == size && sailor_known(problem, option)) options.push_back(option);
    }
  }
  const auto side = static_cast<Index>(layers) + 1;
  const double none = std::numeric_limits<double>::infinity();
  ranges.resize(options.size() * side * side);
  least_out.assign(options.size() * side, none);
  least_in.assign(options.size() * side, none);
  transfers.resize(options.size() * options.size() * side);
  for (int i = 0; i <= layers; ++i) {
    fastest.push_back(options.empty() ? 0 : costs.fastest(options, size, i));
  }
  for (Index o = 0; o < options.size(); ++o) {
    whole.push_back(costs.least_whole(options, o, size));
    for (int first = 0; first < layers; ++first) {
      for (int end = first + 1; end <= layers; ++end) {
        ranges[range(o, first, end)] = {costs.stage(options[o], size, first, end),
                                        costs.static_bytes(options[o], first, end),
                                        costs.activation_bytes(options[o], size, first, end)};
      }
    }
    for (Index to = 0; to < options.size(); ++to) {
      for (int layer = 1; layer < layers; ++layer) {
        const double seconds = costs.transfer(options[o], options[to], layer, size);
        const auto at = static_cast<Index>(layer);
        transfers[(o * options.size() + to) * side + at] = seconds;
        least_out[o * side + at] = std::min(least_out[o * side + at], seconds);
        least_in[to * side + at] = std::min(least_in[to * side + at], seconds);
      }
    }
  }
}

}  // namespace weir::planner
