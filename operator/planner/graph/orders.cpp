// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/graph/orders.h"

#include <algorithm>
#include <cstdint>
#include <deque>

#include "operator/planner/graph/frontier.h"

namespace weir::planner {
namespace {

using Index = std::size_t;

constexpr Index kBeamWidth = 32;                // prefixes; copying them is what the beam costs
constexpr Index kBeamOrders = 4;                // its best prefixes become orders
constexpr std::int64_t kBeamSteps = 2'000'000;  // candidates looked at; then the beam narrows
constexpr Index kBeamCounters = 40'000'000;     // copied; about 0.1 s
constexpr Index kStepsPerPrefix = 8;            // a prefix is reached from as many

std::vector<int> open_predecessors(const Dag& dag) {
  std::vector<int> open;
  for (const auto& before : dag.predecessors) open.push_back(static_cast<int>(before.size()));
  return open;
}

// Kahn's algorithm; `newest` takes the node that became free last, else the one free longest.
std::vector<int> kahn(const Dag& dag, bool newest) {
  std::vector<int> open = open_predecessors(dag);
  std::deque<int> free;
  for (int node = 0; node < dag.nodes; ++node) {
    if (open[static_cast<Index>(node)] == 0) free.push_back(node);
  }
  if (newest) std::ranges::reverse(free);  // so that the first source comes first
  std::vector<int> order;
  while (!free.empty()) {
    const int node = newest ? free.back() : free.front();
    if (newest) {
      free.pop_back();
    } else {
      free.pop_front();
    }
    order.push_back(node);
    for (const int next : dag.successors[static_cast<Index>(node)]) {
      if (--open[static_cast<Index>(next)] == 0) free.push_back(next);
    }
  }
  return order;
}

// A prefix of a linear order.
struct Prefix : Frontier {
  double score = 0;  // running sum of cut bytes
  int trail = -1;    // index into the beam's trail of (node, earlier)
};

struct BeamStep {  // one node after a prefix of the beam
  Index from;
  int node;
  double score;
  std::uint64_t key;
};

class Beam {
 public:
  Beam(const Dag& dag, Index width) : dag_(dag), width_(width) { beam_.push_back({Frontier(dag)}); }

  std::vector<std::vector<int>> orders(Index most) {
    for (int size = 0; size < dag_.nodes; ++size) advance();
    std::vector<std::vector<int>> result;
    for (const Prefix& prefix : beam_) {
      if (result.size() == most) break;
      std::vector<int> order;
      for (int at = prefix.trail; at >= 0; at = trail_[static_cast<Index>(at)].second) {
        order.push_back(trail_[static_cast<Index>(at)].first);
      }
      std::ranges::reverse(order);
      result.push_back(std::move(order));
    }
    return result;
  }

 private:
  void advance() {
    std::vector<BeamStep> steps;
    for (Index from = 0; from < beam_.size(); ++from) {
      for (const int node : beam_[from].free) steps.push_back(step(from, node));
      looked_at_ += static_cast<std::int64_t>(beam_[from].free.size());
    }
    const auto better = [](const BeamStep& a, const BeamStep& b) {
      if (a.score != b.score) return a.score < b.score;
      if (a.key != b.key) return a.key < b.key;
      return a.from != b.from ? a.from < b.from : a.node < b.node;
    };
    const Index width = looked_at_ < kBeamSteps ? width_ : 1;
    const Index sorted = std::min(steps.size(), kStepsPerPrefix * width);
    std::partial_sort(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(sorted),
                      steps.end(), better);
    steps.resize(sorted);
    std::vector<Prefix> next;
    std::vector<std::uint64_t> keys;
    for (const BeamStep& step : steps) {
      if (next.size() == width) break;
      if (std::ranges::find(keys, step.key) != keys.end()) continue;
      keys.push_back(step.key);
      next.push_back(after(step));
    }
    beam_ = std::move(next);
  }

  BeamStep step(Index from, int added) const {
    const Prefix& prefix = beam_[from];
    const auto cut = static_cast<double>(prefix.cut_with(dag_, added));
    return {from, added, prefix.score + cut, prefix.key_with(added)};
  }

  Prefix after(const BeamStep& step) {
    Prefix prefix = beam_[step.from];
    prefix.add(dag_, step.node);
    prefix.score = step.score;
    trail_.emplace_back(step.node, prefix.trail);
    prefix.trail = static_cast<int>(trail_.size()) - 1;
    return prefix;
  }

  const Dag& dag_;
  const Index width_;
  std::vector<Prefix> beam_;
  std::vector<std::pair<int, int>> trail_;
  std::int64_t looked_at_ = 0;
};

}  // namespace

std::vector<std::vector<int>> linear_orders(const Dag& dag) {
  std::vector<std::vector<int>> orders;
  if (dag.chain()) return {kahn(dag, false)};
  // Copying a prefix costs its nodes: wide beams are for graphs that a person can draw.
  const auto nodes = static_cast<Index>(dag.nodes);
  const Index width = std::clamp(kBeamCounters / (nodes * nodes), Index{1}, kBeamWidth);
  orders = Beam(dag, width).orders(kBeamOrders);
  if (width > 1) {
    for (std::vector<int>& order : Beam(dag, 1).orders(1)) orders.push_back(std::move(order));
  }
  orders.push_back(kahn(dag, true));
  orders.push_back(kahn(dag, false));
  std::vector<std::vector<int>> different;
  for (std::vector<int>& order : orders) {
    if (std::ranges::find(different, order) == different.end()) {
      different.push_back(std::move(order));
    }
  }
  return different;
}

}  // namespace weir::planner
