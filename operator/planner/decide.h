// SPDX-License-Identifier: Apache-2.0
// Servers for the best layouts; then the event simulator decides
// among them, all k and both cap rules; then the winner's boundaries move node by node. Inside the
// room only.
#pragma once

#include <map>
#include <vector>

#include "operator/planner/layout.h"

namespace weir::planner {

// Simulated events that may still be spent; a step costs about 4 per stage and micro-batch. A stop
// request of the limits leaves nothing.
class EventBudget {
 public:
  explicit EventBudget(const Limits& limits) : left_(limits.simulated_events), stop_(limits.stop) {}
  bool spend(const Setting& setting, const Layout& layout);  // false: nothing is left
  std::int64_t left() const { return left_; }

 private:
  std::int64_t left_;
  const std::function<bool()> stop_;
};

// Assignments of ranks to servers that may still be scored (Limits::placement_work). The first
// layout may take half of what is left, each other one an eighth.
class PlacementBudget {
 public:
  explicit PlacementBudget(const Limits& limits) : left_(limits.placement_work) {}
  int most_tried(const Setting& setting, const Layout& layout, bool first) const;
  void spend(const Setting& setting, const Layout& layout, std::int64_t tried);
  bool empty() const { return left_ <= 0; }
  std::int64_t left() const { return left_; }

 private:
  std::int64_t left_;
};

// A layout with devices, or nothing when there are too few. `current`: see Request::current.
bool place(const Setting& setting, Layout& layout, bool first, PlacementBudget& budget);

struct Scored {
  std::vector<Layout> by_k;  // the best of each k that fits, rising k, placed and simulated
  std::map<int, std::string> why_not;  // k that does not fit
  std::vector<Layout> others;          // placed, simulated, not the best of their k
};

// Layouts: placed. Every layout with every k and cap rule of the request.
void simulate_all(const Setting& setting, const std::vector<Layout>& layouts, EventBudget& budget,
                  Scored& scored);
// Moves boundaries by one node and tilts the cut to lighter late stages while that shortens the
// step.
void shift(const Setting& setting, Layout& layout, EventBudget& budget);

// True when a is to be preferred: shorter step; else fewer devices, fewer stages, smaller k,
// earlier boundaries.
bool better(const Layout& a, const Layout& b);

}  // namespace weir::planner
