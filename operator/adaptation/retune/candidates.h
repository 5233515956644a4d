// SPDX-License-Identifier: Apache-2.0
// The schedules that a job may run with (operator/adaptation/retune/README.md "Candidates"). Only
// this room includes it.
#pragma once

#include <array>
#include <vector>

#include "operator/adaptation/costing/cost.h"
#include "operator/adaptation/retune/tune.h"

namespace weir::retune {

struct Candidate {
  schedule::Schedule schedule;
  std::size_t size = 0;  // index into the sizes
  // drop_dominated computes them: seconds of a step at the 10, 50 and 90 % quantile, and the
  // reserve, those if links become slower.
  std::array<double, 3> seconds{};
  double reserve = 0;
  bool measured = false;
};

// The current schedule first, then all other candidates of every size, without duplicates: Strict
// 1F1B; caps of kFkB for k in 2,3,4,6,8; with Hint also slack 2..8, and the lean and the searched
// caps at the 10, 50 and 90 % quantile of the transfer times. Caps of other sizes are searched at
// the median only. All candidates are within M, memory and the user's k.
std::vector<Candidate> candidates(const Input& input, const State& state,
                                  const costing::LinkView& view, const std::vector<Size>& sizes);

// Keeps the current plan and the `most` others with the shortest step according to a closed form,
// in which the slowest part or loop at the median transfer times sets the pace.
void keep_promising(std::vector<Candidate>& candidates, const costing::LinkView& view,
                    const std::vector<Size>& sizes, std::size_t most);

// Adds each plan with whole backwards again with split ones, with every useful limit of
// micro-batches that stages hold (worker/schedule/search_split.h). Each is within memory; the
// number of weight gradients to postpone is the better one at the median transfer times. Nothing if
// the settings do not allow it or no layer has weight gradients apart.
void add_splits(std::vector<Candidate>& candidates, const Input& input, const State& state,
                const costing::LinkView& view, const std::vector<Size>& sizes);

// Drops every plan for which another plan of its size is better in memory (samples in flight), in
// time at the 10, 50 and 90 % quantile, and in reserve. The current plan and Strict 1F1B of the
// current size stay. A plan with split backwards drops another one with split ones only, unless
// `all`: the others are still to be split.
void drop_dominated(std::vector<Candidate>& candidates, const costing::LinkView& view,
                    const std::vector<Size>& sizes, const State& state, costing::Coster& coster,
                    bool all);

// Samples in flight over all stages; with split backwards those that stages hold at most.
int in_flight(const schedule::Schedule& schedule);
bool same_order(const schedule::Schedule& a, const schedule::Schedule& b);

}  // namespace weir::retune
