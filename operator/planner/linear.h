// SPDX-License-Identifier: Apache-2.0
// The best cuts of a chain for a fixed shape: a dynamic program over suffixes inside a search over
// the period. Inside the room only. The objective is step_seconds of cost.h.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/planner/chain.h"
#include "operator/planner/cost.h"
#include "operator/planner/slots.h"

namespace weir::planner {

struct Problem {
  const Chain& chain;
  const Slots& slots;
  const Shape& shape;
  std::vector<BoundaryLink> links;  // S-1
  // Kind of each stage; empty: any, each device once (exact over counts of kinds; table_size).
  std::vector<int> kinds;
};

struct CostedCut {
  Cut cut;
  double seconds = 0;
};

struct Solved {
  std::vector<CostedCut> best;  // rising, at most kKeptCuts; empty: nothing fits into memory
  // No cut of this problem is faster, by the same cost model. Below best.front() by at most the
  // grid's width (0.3 %).
  double lower_bound = 0;
};

constexpr std::size_t kKeptCuts = 4;  // for the simulator to decide among

Solved solve(const Problem& problem);
// Size of the table when the counts of kinds are kept apart; 0 = too large in any case. `solve`
// visits it about 40 times; 1e5 entries take about a second.
std::int64_t table_size(const Slots& slots, int stages, int layers);

Pipeline pipeline_of(const Chain& chain, const Slots& slots, const Cut& cut,
                     const std::vector<BoundaryLink>& links);
// Bytes of stage s of a cut; compare with Kind::usable_bytes.
std::int64_t stage_bytes(const Chain& chain, const Shape& shape, int stage, int first, int end);

}  // namespace weir::planner
