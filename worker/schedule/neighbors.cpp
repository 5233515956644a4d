// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/neighbors.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "worker/base/text.h"

namespace weir::schedule {
namespace {

// Each keeps the copy of the one `distance` places before it in `order`, cyclic.
Neighbors shifted(const std::vector<std::string>& nodes, const std::vector<int>& order,
                  int distance) {
  Neighbors result{.keeper = std::vector<int>(nodes.size())};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int keeper = order[(i + static_cast<std::size_t>(distance)) % order.size()];
    result.keeper[static_cast<std::size_t>(order[i])] = keeper;
    if (nodes[static_cast<std::size_t>(order[i])] == nodes[static_cast<std::size_t>(keeper)]) {
      ++result.on_same_node;
      const int first = result.least_protected;
      if (first < 0 || order[i] < first) result.least_protected = order[i];
    }
  }
  return result;
}

}  // namespace

Neighbors neighbors(const Plan& plan) {
  const int stages = plan.stage_count();
  if (stages < 2) return {};
  std::vector<std::string> nodes(static_cast<std::size_t>(stages));
  for (const RankPlace& rank : plan.ranks) {
    nodes[static_cast<std::size_t>(rank.stage)] = rank.node;
  }
  std::vector<int> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  Neighbors best = shifted(nodes, order, 1);
  for (int distance = 2; distance < stages && best.on_same_node > 0; ++distance) {
    Neighbors other = shifted(nodes, order, distance);
    if (other.on_same_node < best.on_same_node) best = std::move(other);
  }
  if (best.on_same_node == 0) return best;
  // Node by node, the number of stages of the fullest one leads from each stage to another node,
  // except for as many as that node has beyond half of all.
  std::ranges::stable_sort(order, {}, [&](int stage) -> const std::string& {
    return nodes[static_cast<std::size_t>(stage)];
  });
  std::map<std::string, int> counts;
  for (const std::string& node : nodes) ++counts[node];
  const int fullest =
      std::ranges::max_element(counts, {}, [](const auto& one) { return one.second; })->second;
  Neighbors by_node = shifted(nodes, order, fullest % stages);
  return by_node.on_same_node < best.on_same_node ? by_node : best;
}

std::string no_room_for_copies(std::int64_t needed, std::int64_t free) {
  return "copies need " + megabytes(needed) + ", " + megabytes(std::max<std::int64_t>(0, free)) +
         " are free; raise the memory limit, or set recovery.neighborCopies to Auto or Off";
}

}  // namespace weir::schedule
