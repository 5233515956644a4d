// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/graph/promising_ideals.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "operator/planner/graph/frontier.h"
#include "operator/planner/graph/ideal_builder.h"
#include "operator/planner/graph/orders.h"

namespace weir::planner {
namespace {

using Index = std::size_t;

constexpr Index kMostOfASize = 256;
constexpr std::int64_t kMostSteps = 2'000'000;  // candidates looked at; then it narrows
constexpr Index kMostCounters = 40'000'000;     // copied; about 0.1 s
constexpr Index kStepsPerIdeal = 8;             // a wide ideal is reached from as many
constexpr Index kMostFlows = 64;
constexpr int kMostFlowNodes = 8192;

// One ideal of the current size.
struct Reached : Frontier {
  Index ideal = 0;
};

struct Step {
  Index from;
  int node;
  std::int64_t cut;
  std::uint64_t key;
};

// Breadth first by size, at most `width` ideals of a size.
class Narrow {
 public:
  Narrow(const Dag& dag, Index width)
      : dag_(dag), width_(width), family_(dag, width * static_cast<Index>(dag.nodes) / 2) {
    family_.add_empty();
    level_.push_back({Frontier(dag)});
  }

  Ideals run() {
    for (int size = 0; size < dag_.nodes; ++size) advance();
    return std::move(family_.ideals());
  }

 private:
  void advance() {
    std::vector<Step> steps;
    for (Index from = 0; from < level_.size(); ++from) {
      for (const int node : level_[from].free) steps.push_back(step(from, node));
    }
    looked_at_ += static_cast<std::int64_t>(steps.size());
    const Index width = looked_at_ < kMostSteps ? width_ : 2;
    // Equal ideals have equal keys and cuts: they end up side by side.
    const Index sorted = std::min(steps.size(), kStepsPerIdeal * width);
    std::partial_sort(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(sorted),
                      steps.end(), [](const Step& a, const Step& b) {
                        if (a.cut != b.cut) return a.cut < b.cut;
                        return a.key != b.key ? a.key < b.key : a.from < b.from;
                      });
    std::vector<Reached> next;
    for (Index i = 0; i < sorted && next.size() < width; ++i) {
      if (i == 0 || steps[i].key != steps[i - 1].key) next.push_back(after(steps[i]));
    }
    level_ = std::move(next);
  }

  Step step(Index from, int added) const {
    const Reached& reached = level_[from];
    return {from, added, reached.cut_with(dag_, added), reached.key_with(added)};
  }

  Reached after(const Step& step) {
    Reached reached = level_[step.from];
    reached.add(dag_, step.node);
    reached.ideal = family_.add(reached.ideal, step.node);
    return reached;
  }

  const Dag& dag_;
  const Index width_;
  IdealBuilder family_;
  std::vector<Reached> level_;
  std::int64_t looked_at_ = 0;
};

// Dinic's maximum flow. The ideal of least cut that holds `source` and not `sink`: x_v = v is
// inside, y_v = all consumers of v are inside; out(v) is paid where x_v and not y_v.
class Flow {
 public:
  explicit Flow(const Dag& dag) : nodes_(static_cast<Index>(dag.nodes)), first_(2 * nodes_) {
    for (Index v = 0; v < nodes_; ++v) {
      if (dag.successors[v].empty()) continue;
      add(v, nodes_ + v, dag.output[v]);
      for (const int consumer : dag.successors[v]) {
        add(nodes_ + v, static_cast<Index>(consumer), kEndless);
        add(static_cast<Index>(consumer), v, kEndless);
      }
    }
  }

  // At most `enough`: larger flows do not matter to the caller.
  std::int64_t between(Index source, Index sink, std::int64_t enough) {
    for (Arc& arc : arcs_) arc.left = arc.capacity;
    std::int64_t flow = 0;
    while (flow < enough && levels(source, sink)) {
      next_.assign(first_.size(), 0);
      for (std::int64_t pushed = 1; flow < enough && pushed > 0; flow += pushed) {
        pushed = push(source, sink, enough - flow);
      }
    }
    return flow;
  }

 private:
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max() / 4;
  struct Arc {
    Index to;
    std::int64_t capacity, left;
  };

  void add(Index from, Index to, std::int64_t capacity) {
    first_[from].push_back(arcs_.size());
    arcs_.push_back({to, capacity, 0});
    first_[to].push_back(arcs_.size());
    arcs_.push_back({from, 0, 0});
  }

  bool levels(Index source, Index sink) {
    level_.assign(first_.size(), -1);
    std::vector<Index> queue{source};
    level_[source] = 0;
    for (Index at = 0; at < queue.size() && level_[sink] < 0; ++at) {
      for (const Index arc : first_[queue[at]]) {
        if (arcs_[arc].left == 0 || level_[arcs_[arc].to] >= 0) continue;
        level_[arcs_[arc].to] = level_[queue[at]] + 1;
        queue.push_back(arcs_[arc].to);
      }
    }
    return level_[sink] >= 0;
  }

  // One augmenting path along rising levels, without recursion.
  std::int64_t push(Index source, Index sink, std::int64_t most) {
    std::vector<Index> path;  // arcs
    for (Index at = source; at != sink;) {
      if (next_[at] == first_[at].size()) {
        if (path.empty()) return 0;
        const Index back = path.back();
        path.pop_back();
        at = arcs_[back ^ 1U].to;
        ++next_[at];
        continue;
      }
      const Index arc = first_[at][next_[at]];
      if (arcs_[arc].left > 0 && level_[arcs_[arc].to] == level_[at] + 1) {
        path.push_back(arc);
        at = arcs_[arc].to;
      } else {
        ++next_[at];
      }
    }
    std::int64_t flow = most;
    for (const Index arc : path) flow = std::min(flow, arcs_[arc].left);
    for (const Index arc : path) {
      arcs_[arc].left -= flow;
      arcs_[arc ^ 1U].left += flow;
    }
    return flow;
  }

  const Index nodes_;
  std::vector<std::vector<Index>> first_;  // arcs by node; arc ^ 1 is its reverse
  std::vector<Arc> arcs_;
  std::vector<int> level_;
  std::vector<Index> next_;
};

}  // namespace

Ideals promising_ideals(const Dag& dag, std::size_t most) {
  const auto nodes = static_cast<Index>(dag.nodes);
  const Ideals along = ideals_of_orders(dag, linear_orders(dag), most / 2);
  const Index affordable = kMostCounters / (nodes * nodes);  // an ideal copies those of all nodes
  const Index width = std::min({kMostOfASize, most / 2 / nodes, affordable});
  if (width < 2) return along;
  return union_of(along, Narrow(dag, width).run());
}

std::int64_t smallest_cut(const Dag& dag) {
  std::vector<Index> sources;
  std::vector<Index> sinks;
  for (Index i = 0; i < static_cast<Index>(dag.nodes); ++i) {
    if (dag.predecessors[i].empty()) sources.push_back(i);
    if (dag.successors[i].empty()) sinks.push_back(i);
  }
  if (sources.size() * sinks.size() > kMostFlows || dag.nodes > kMostFlowNodes) return 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max() / 8;
  Flow flow(dag);
  for (const Index source : sources) {
    for (const Index sink : sinks) {
      if (source == sink) return 0;  // a node on its own: inside or outside, nothing crosses
      least = std::min(least, flow.between(source, sink, least));
    }
  }
  return least;
}

}  // namespace weir::planner
