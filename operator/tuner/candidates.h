// SPDX-License-Identifier: Apache-2.0
// Which schedules a job may run with (operator/tuner/README.md "Candidates"). Inside the room only.
#pragma once

#include <vector>

#include "operator/tuner/cost.h"
#include "operator/tuner/tune.h"

namespace weir::tuner {

struct Candidate {
  schedule::Schedule schedule;
  std::size_t size = 0;  // index into the sizes
  double reserve = 0;    // seconds of a step if links were slower still; drop_dominated fills it in
};

// The current schedule first, then every other legal one, each once, of every size: Strict 1F1B;
// kFkB's caps for k in 2,3,4,6,8; with Hint also slack 2..8 and the lean and the searched caps at
// the 10, 50 and 90 % quantile of the transfer times (searched: of other sizes at 50 % only). All
// within M, memory, and the user's k.
std::vector<Candidate> candidates(const Input& input, const State& state, const LinkView& view,
                                  const std::vector<Size>& sizes);

// Keeps the current plan and the `most` others with the shortest step by a closed form: the longest
// of all parts and of all loops at the median transfer times sets the pace.
void keep_promising(std::vector<Candidate>& candidates, const LinkView& view,
                    const std::vector<Size>& sizes, std::size_t most);

// Drops every plan that another of its size beats in memory (samples in flight) and in time at the
// 10, 50 and 90 % quantile and in reserve alike. The current plan and Strict 1F1B of the current
// size stay.
void drop_dominated(std::vector<Candidate>& candidates, const LinkView& view,
                    const std::vector<Size>& sizes, const State& state, Coster& coster);

// In samples, over all stages.
int in_flight(const schedule::Schedule& schedule);
bool same_order(const schedule::Schedule& a, const schedule::Schedule& b);

}  // namespace weir::tuner
