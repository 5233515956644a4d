// SPDX-License-Identifier: Apache-2.0
// An ideal that grows node by node, without its members: what may come next and what a cut behind
// it costs. Searches that keep the best few of a size are made of it.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/planner/graph/dag.h"

namespace weir::planner {

struct Frontier {
  explicit Frontier(const Dag& dag);  // of the empty ideal

  std::int64_t cut_with(const Dag& dag, int node) const;  // bytes, after that free node
  std::uint64_t key_with(int node) const;
  void add(const Dag& dag, int node);  // a free one

  std::vector<int> free;     // nodes that may come next
  std::vector<int> open;     // per node: consumers outside
  std::vector<int> missing;  // per node: predecessors outside
  std::int64_t cut = 0;
  std::uint64_t key = 0;  // equal for equal ideals
};

}  // namespace weir::planner
