// SPDX-License-Identifier: Apache-2.0
// The steady bottleneck (objective `async`, compat `pipedream`): the smallest possible maximum of
// stage and boundary times over all cuts into a chain of stages. One device
// class; a stage on r ranks costs (W + 4 (r-1) P / (bw r)) / r, a boundary 2 cut / (bw r) with the
// r of both sides. No memory test.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "operator/planner/graph/dag.h"
#include "operator/planner/graph/ideals.h"

namespace weir::planner {

struct BottleneckProblem {
  int devices = 1;                // at most so many are used
  double bytes_per_second = 1e9;  // one level
  bool transfers = true;          // false: boundaries cost nothing
  double tolerance = 1e-9;        // relative width of the interval at the end
  IdealLimits limits;
  // Pairs of ideals that the exact search may look at, about 5 ns each (twice that in all, for the
  // bound); above: status gap.
  std::int64_t most_pairs = 1'500'000'000;
  std::function<bool()> stop;  // asked now and then; true: the best plan so far. May be empty.
};

enum class Certainty : unsigned char { kOptimal, kGap, kHeuristic };

struct BottleneckStage {
  std::vector<int> nodes;  // of the Dag, rising
  int ranks = 1;
};

struct BottleneckPlan {
  std::vector<BottleneckStage> stages;
  double value = 0, lower_bound = 0;  // seconds; of the plan, and of any plan
  Certainty certainty = Certainty::kHeuristic;
  std::size_t ideals = 0, boundaries = 0;  // boundaries: ideals in the hardest question
  std::int64_t pairs = 0;
};

// ideals: all of them when the caller has them already.
BottleneckPlan plan_bottleneck(const Dag& dag, const BottleneckProblem& problem,
                               const Ideals* ideals = nullptr);

}  // namespace weir::planner
