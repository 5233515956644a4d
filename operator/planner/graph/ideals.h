// SPDX-License-Identifier: Apache-2.0
// Families of order ideals (downsets) of a Dag: all of them, or the prefixes of some linear orders.
// The engines take either; over all ideals they are exact.
// Every value is an integer sum, so it does not depend on the path that found the ideal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "operator/planner/graph/dag.h"

namespace weir::planner {

struct IdealLimits {
  std::size_t most = 2'000'000;
  std::size_t most_bytes = std::size_t{1} << 30;
};

// Ideals by rising size: index 0 is the empty one, the last is all nodes. I before J is necessary
// for I < J.
struct Ideals {
  int nodes = 0, words = 0;
  bool complete = false;            // all ideals of the graph are here
  std::vector<std::uint64_t> bits;  // words per ideal
  std::vector<std::int32_t> size;   // nodes inside
  // [class][ideal]: nanoseconds inside.
  std::vector<std::vector<std::int64_t>> forward, backward, update;
  std::vector<std::int64_t> parameters, frozen, stash;  // bytes inside
  std::vector<std::int64_t> cut;  // output bytes of inside nodes that have a consumer outside

  std::size_t count() const { return size.size(); }
  std::size_t last() const { return size.size() - 1; }
  const std::uint64_t* set(std::size_t ideal) const {
    return bits.data() + ideal * static_cast<std::size_t>(words);
  }
  bool has(std::size_t ideal, int node) const {
    return ((set(ideal)[node / 64] >> (node % 64)) & 1U) != 0;
  }
  bool subset(std::size_t inner, std::size_t outer) const {
    const std::uint64_t* a = set(inner);
    const std::uint64_t* b = set(outer);
    for (int w = 0; w < words; ++w) {
      if ((a[w] & ~b[w]) != 0) return false;
    }
    return true;
  }
  std::int64_t work(std::size_t device_class, std::size_t ideal) const {
    return forward[device_class][ideal] + backward[device_class][ideal];
  }
  // Nodes of outer that are not in inner, rising.
  std::vector<int> difference(std::size_t inner, std::size_t outer) const;
};

// All ideals, or nothing when there are more than the limits allow.
std::optional<Ideals> enumerate_ideals(const Dag& dag, const IdealLimits& limits = {});

// The prefixes of linear orders (each a permutation of the nodes, predecessors first), equal ones
// once. Of more than about `most` it keeps those with the smallest cuts, evenly spread.
Ideals ideals_of_orders(const Dag& dag, std::span<const std::vector<int>> orders,
                        std::size_t most = 16384);

// The ideals of `from` at the given indices, rising; must hold the empty and the full one.
Ideals ideals_at(const Ideals& from, std::span<const std::size_t> indices);

}  // namespace weir::planner
