// SPDX-License-Identifier: Apache-2.0
// The engine of the simulated step: bound V over all plans, candidates for each k and period, the
// event simulator decides (operator/planner/README.md "How a plan is found"). Inside the room only.
#pragma once

#include "operator/planner/sync/engine.h"
#include "operator/planner/sync/search.h"

namespace weir::planner {

constexpr double kOptimalGap = 1e-6;       // of "optimal"
constexpr double kRoundingOfSums = 1e-9;   // sums in another order
constexpr int kMostKeys = 20'000;          // states of used devices in an exact search
constexpr std::size_t kFewIdeals = 300;    // of the first search
constexpr double kRelaxationWork = 1.5e6;  // steps of one relaxation

std::size_t bucket_count(const SyncSpace& space);
SearchShape shape_of(const SyncRequest& request, CapRule rule, int k);
// The best step of one stage by sync0; infinite if it fits nowhere.
double single_stage(const SyncModel& model, const SearchShape& shape);

Result<SyncPlans> search_step_time(const Dag& dag, const Ideals& ideals,
                                   const SyncRequest& request);

}  // namespace weir::planner
