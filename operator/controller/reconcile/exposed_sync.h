// SPDX-License-Identifier: Apache-2.0
// What the exact sums over replicas add to a step: the time from the last backward until the
// slowest sum is complete. It decides which of a plan's links are between stages, where an order of
// micro-batches may hide a slow one, and which between replicas, where nothing does (PipeMorph,
// NSDI'26: 8.04 x against 2.24 x for one link). Private to this room; pure.
#pragma once

#include <vector>

#include "operator/controller/reconcile/pass.h"
#include "operator/planner/model/cluster.h"
#include "operator/planner/model/model.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/simulator.h"

namespace weir::reconcile {

// The links that sums may take.
struct SumLinks {
  planner::Cluster cluster;
  double most =
      0;  // bytes per second of any: the most that links of sums usually have; 0 = unknown
};
// What links carried on average while the rates were sampled that a step is predicted from: sums
// take turns with bursts of others. What is not measured now is as the cluster says, but no faster
// than what is: else whatever nobody has measured would look better.
SumLinks sum_links(const Pass& pass, planner::Cluster cluster);

// Seconds by the links alone. Stage s ends its last backward earlier than stage 0 by the backwards
// of the stages before it, so its sum has that much time for nothing:
//   max over s of  3 (P-1)/P parameter bytes / slowest link among the replicas - sum of b before s
// at least 0. `stages`: f, b of one micro-batch. 0 for one replica, for more than 64 ranks, and
// where replicas average in groups (worker/groups deals with slow ports there).
double sum_tail(const schedule::Plan& plan, const planner::Model& model, const SumLinks& links,
                const std::vector<schedule::StageTime>& stages);

// What a measured tail becomes when the links' part of it changes: other causes of it stay; a model
// that expects more than was measured is right only in its ratio.
double changed_tail(double measured, double modelled, double modelled_then);

}  // namespace weir::reconcile
