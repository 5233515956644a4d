// SPDX-License-Identifier: Apache-2.0
// All ideals without a hash table: the node of the largest index in an ideal is maximal, because
// nodes are in topological order. So every ideal has exactly one parent, itself without that node,
// and adding only nodes above the largest one visits each ideal once.
#include "operator/planner/graph/ideals.h"

#include <algorithm>

#include "operator/planner/graph/ideal_builder.h"
#include "worker/base/check.h"

namespace weir::planner {
namespace {

using Index = std::size_t;

// Bytes that one ideal takes in `Ideals`.
Index bytes_per_ideal(const Dag& dag) {
  const Index words = (static_cast<Index>(dag.nodes) + 63) / 64;
  return 8 * words + 4 + 8 * (3 * dag.classes.size() + 3);
}

// Counts the ideals, depth first, or stops above `most`. O(width + degree) per ideal, O(nodes *
// width) memory.
Index count_ideals(const Dag& dag, Index most) {
  struct Frame {
    int node;                // added by this frame
    Index begin, next, end;  // its candidates, and the next to try: positions in `free`
  };
  std::vector<int> missing;  // predecessors that are outside
  std::vector<int> free;     // a stack of candidate lists
  for (Index i = 0; i < static_cast<Index>(dag.nodes); ++i) {
    missing.push_back(static_cast<int>(dag.predecessors[i].size()));
    if (missing.back() == 0) free.push_back(static_cast<int>(i));
  }
  if (free.size() >= 63 || (Index{1} << free.size()) > most) return most + 1;
  Index count = 1;
  std::vector<Frame> stack{{-1, 0, 0, free.size()}};
  while (!stack.empty()) {
    Frame& top = stack.back();
    if (top.next == top.end) {
      if (top.node >= 0) {
        for (const int next : dag.successors[static_cast<Index>(top.node)]) {
          ++missing[static_cast<Index>(next)];
        }
      }
      stack.pop_back();
      free.resize(stack.empty() ? 0 : stack.back().end);
      continue;
    }
    if (++count > most) return count;
    const int node = free[top.next++];
    const Index child = free.size();
    for (Index i = top.begin; i < top.end; ++i) {
      if (free[i] > node) free.push_back(free[i]);
    }
    for (const int next : dag.successors[static_cast<Index>(node)]) {
      if (--missing[static_cast<Index>(next)] == 0) free.push_back(next);
    }
    stack.push_back({node, child, child, free.size()});
    // Free nodes are independent: every subset of them makes an ideal.
    const Index independent = free.size() - child;
    if (independent >= 63 || (Index{1} << independent) > most) return most + 1;
  }
  return count;
}

// Candidates of the ideals of one size: nodes above the largest one whose predecessors are inside.
struct Level {
  std::vector<int> nodes;
  std::vector<Index> end{0};  // of the lists, one per ideal, after a leading 0
};

bool inside(const std::uint64_t* bits, const std::vector<int>& nodes) {
  return std::ranges::all_of(
      nodes, [&](int node) { return ((bits[node / 64] >> (node % 64)) & 1U) != 0; });
}

}  // namespace

std::vector<int> Ideals::difference(std::size_t inner, std::size_t outer) const {
  std::vector<int> result;
  for (int node = 0; node < nodes; ++node) {
    if (has(outer, node) && !has(inner, node)) result.push_back(node);
  }
  return result;
}

std::optional<Ideals> enumerate_ideals(const Dag& dag, const IdealLimits& limits) {
  const Index most = std::min(limits.most, limits.most_bytes / bytes_per_ideal(dag));
  const Index count = count_ideals(dag, most);
  if (count > most) return std::nullopt;

  IdealBuilder family(dag, count);
  family.add_empty();
  Ideals& ideals = family.ideals();
  ideals.complete = true;
  Level level;
  Level next;
  for (int node = 0; node < dag.nodes; ++node) {
    if (dag.predecessors[static_cast<Index>(node)].empty()) level.nodes.push_back(node);
  }
  level.end.push_back(level.nodes.size());
  for (Index first = 0; first < ideals.count();) {
    const Index end = ideals.count();
    next.nodes.clear();
    next.end.assign(1, 0);
    for (Index parent = first; parent < end; ++parent) {
      const Index from = level.end[parent - first];
      const Index to = level.end[parent - first + 1];
      for (Index i = from; i < to; ++i) {
        const int node = level.nodes[i];
        const Index child = family.add(parent, node);
        for (Index j = from; j < to; ++j) {
          if (level.nodes[j] > node) next.nodes.push_back(level.nodes[j]);
        }
        const std::uint64_t* bits = ideals.set(child);
        for (const int consumer : dag.successors[static_cast<Index>(node)]) {
          if (inside(bits, dag.predecessors[static_cast<Index>(consumer)])) {
            next.nodes.push_back(consumer);
          }
        }
        next.end.push_back(next.nodes.size());
      }
    }
    std::swap(level, next);
    first = end;
  }
  WEIR_CHECK(ideals.count() == count, "both walks see the same ideals");
  return std::move(ideals);
}

namespace {

// The cut after each node of an order.
std::vector<std::int64_t> cuts_along(const Dag& dag, const std::vector<int>& order) {
  std::vector<Index> open;  // consumers still outside
  for (const auto& consumers : dag.successors) open.push_back(consumers.size());
  std::vector<std::int64_t> cuts;
  std::int64_t cut = 0;
  for (const int added : order) {
    const auto node = static_cast<Index>(added);
    if (open[node] > 0) cut += dag.output[node];
    for (const int before : dag.predecessors[node]) {
      if (--open[static_cast<Index>(before)] == 0) cut -= dag.output[static_cast<Index>(before)];
    }
    cuts.push_back(cut);
  }
  return cuts;
}

// Which prefixes of an order to keep: in every window of `stride` the one with the smallest cut,
// and the whole graph.
std::vector<bool> kept_prefixes(const Dag& dag, const std::vector<int>& order, Index stride) {
  const std::vector<std::int64_t> cuts = cuts_along(dag, order);
  std::vector<bool> kept(cuts.size(), false);
  for (Index first = 0; first < cuts.size(); first += stride) {
    const auto begin = cuts.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end =
        cuts.begin() + static_cast<std::ptrdiff_t>(std::min(first + stride, cuts.size()));
    kept[static_cast<Index>(std::min_element(begin, end) - cuts.begin())] = true;
  }
  kept.back() = true;
  return kept;
}

}  // namespace

Ideals ideals_of_orders(const Dag& dag, std::span<const std::vector<int>> orders,
                        std::size_t most) {
  WEIR_CHECK(!orders.empty() && most > 0, "a family has an order");
  const auto nodes = static_cast<Index>(dag.nodes);
  const Index stride = (nodes * orders.size() + most - 1) / most;
  std::vector<IdealBuilder> walks;
  std::vector<std::vector<bool>> kept;
  for (const std::vector<int>& order : orders) {
    walks.emplace_back(dag, 2).add_empty();
    kept.push_back(kept_prefixes(dag, order, stride));
  }
  Picker family(walks.front().ideals());
  const Ideals& ideals = family.ideals();
  family.pick(walks.front().ideals(), 0);
  for (Index size = 0; size < nodes; ++size) {
    const Index first = ideals.count();
    for (Index o = 0; o < orders.size(); ++o) {
      walks[o].step(orders[o][size]);
      if (!kept[o][size]) continue;
      const std::uint64_t* bits = walks[o].ideals().set(0);
      bool known = false;
      for (Index other = first; other < ideals.count() && !known; ++other) {
        known = std::equal(bits, bits + ideals.words, ideals.set(other));
      }
      if (!known) family.pick(walks[o].ideals(), 0);
    }
  }
  return family.finish(stride == 1 && dag.chain());
}

Ideals ideals_at(const Ideals& from, std::span<const std::size_t> indices) {
  Picker family(from);
  for (const std::size_t i : indices) family.pick(from, i);
  return family.finish(from.complete && indices.size() == from.count());
}

}  // namespace weir::planner
