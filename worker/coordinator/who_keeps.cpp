// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/who_keeps.h"

#include <tuple>

namespace weir::coordinator {

std::vector<int> keepers_that_stay(std::vector<int> keeper, const std::vector<std::string>& nodes,
                                   const std::set<int>& leaving, const std::set<int>& failed) {
  const int stages = static_cast<int>(keeper.size());
  const auto at = [](int stage) { return static_cast<std::size_t>(stage); };
  const auto keeps = [&](int stage) {
    return stage >= 0 && !leaving.contains(stage) && !failed.contains(stage);
  };
  std::vector<int> copies(keeper.size());
  std::vector<int> open;
  for (const bool leaves : {true, false}) {
    for (int stage = 0; stage < stages; ++stage) {
      if (leaving.contains(stage) != leaves) continue;
      if (keeps(keeper[at(stage)])) {
        ++copies[at(keeper[at(stage)])];
      } else {
        open.push_back(stage);
      }
    }
  }
  for (const int stage : open) {
    const auto rank = [&](int other, int distance) {
      return std::tuple(copies[at(other)], nodes[at(other)] == nodes[at(stage)], distance);
    };
    int best = -1, best_distance = 0;
    for (int distance = 1; distance < stages; ++distance) {
      const int other = (stage + distance) % stages;
      if (!keeps(other) || copies[at(other)] >= kMostCopies) continue;
      if (best >= 0 && rank(best, best_distance) < rank(other, distance)) continue;
      best = other;
      best_distance = distance;
    }
    keeper[at(stage)] = best;
    if (best >= 0) ++copies[at(best)];
  }
  return keeper;
}

}  // namespace weir::coordinator
