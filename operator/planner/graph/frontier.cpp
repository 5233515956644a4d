// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/graph/frontier.h"

#include <cstddef>

namespace weir::planner {

using Index = std::size_t;

Frontier::Frontier(const Dag& dag) {
  for (Index i = 0; i < static_cast<Index>(dag.nodes); ++i) {
    open.push_back(static_cast<int>(dag.successors[i].size()));
    missing.push_back(static_cast<int>(dag.predecessors[i].size()));
    if (missing.back() == 0) free.push_back(static_cast<int>(i));
  }
}

std::int64_t Frontier::cut_with(const Dag& dag, int added) const {
  const auto node = static_cast<Index>(added);
  std::int64_t bytes = cut;
  if (!dag.successors[node].empty()) bytes += dag.output[node];
  for (const int before : dag.predecessors[node]) {
    const auto at = static_cast<Index>(before);
    if (open[at] == 1) bytes -= dag.output[at];
  }
  return bytes;
}

std::uint64_t Frontier::key_with(int node) const {  // splitmix64 of each node
  std::uint64_t z = (static_cast<std::uint64_t>(node) + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return key ^ z ^ (z >> 31);
}

void Frontier::add(const Dag& dag, int added) {
  const auto node = static_cast<Index>(added);
  cut = cut_with(dag, added);
  key = key_with(added);
  std::erase(free, added);
  for (const int before : dag.predecessors[node]) --open[static_cast<Index>(before)];
  for (const int next : dag.successors[node]) {
    if (--missing[static_cast<Index>(next)] == 0) free.push_back(next);
  }
}

}  // namespace weir::planner
