// SPDX-License-Identifier: Apache-2.0
// Ideals as counts along a chain decomposition of the graph: I is inside J exactly when no chain
// holds more of I than of J. Eight counts of 16 bits compare in one instruction, so a subset test
// costs one or two where the graph is narrow. Inside the room only.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/planner/graph/dag.h"
#include "operator/planner/graph/ideals.h"

namespace weir::planner {

// The chain of every node, numbered from 0. Greedy: a node joins the chain whose tail is its
// nearest ancestor. Empty: the graph has over 4,096 nodes or needs more than `most` chains.
std::vector<int> chains_of(const Dag& dag, int most);

// Eight counts (vector extension of GCC and Clang).
using Lanes = std::int16_t __attribute__((vector_size(16)));

inline bool any_above(const Lanes& a, const Lanes& b) {
  using Halves = std::int64_t __attribute__((vector_size(16)));
  const auto above = reinterpret_cast<Halves>(a > b);
  return (above[0] | above[1]) != 0;
}

// Writes the counts of one ideal, 8 chains to a Lanes; chains as from chains_of.
void fill_lanes(const Ideals& ideals, std::size_t ideal, const std::vector<int>& chains, Lanes* to,
                int blocks);

}  // namespace weir::planner
