// SPDX-License-Identifier: Apache-2.0
// Exposed sync: the part of exact sums over replicas that backward passes do not hide, that is, the
// time from the last backward until the slowest sum is complete. It matters for the choice of a
// plan's links: an order of micro-batches may hide a slow link between stages, but nothing hides
// one between replicas (PipeMorph, NSDI'26: 8.04 x against 2.24 x for one link). Pure.
#pragma once

#include <vector>

#include "operator/adaptation/costing/input.h"
#include "operator/facts/facts.h"
#include "operator/planner/model/cluster.h"
#include "operator/planner/model/model.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/simulator.h"

namespace weir::costing {

// Rates of the links that sums may use.
struct SumLinks {
  planner::Cluster cluster;
  double most = 0;         // bytes per second, upper limit of any link of sums; 0 = unknown
  double packed_part = 1;  // of estimator::Estimates
};
// Mean rates over the samples from which a step is predicted, since sums take turns with bursts of
// other traffic. An unmeasured link has the cluster's rate, limited by `most`; otherwise it would
// look better than measured links.
SumLinks sum_links(const facts::Facts& facts, planner::Cluster cluster);

// The rest of each stage's sum when its last gradients are complete, according to the links. A
// whole sum takes
//   (2 q + 1) (P-1)/P parameter bytes / slowest link among the replicas:
// contributions are doubles, of which a link slower than kPackedBelow carries the part q, results
// are floats, and a replica keeps its own segment (worker/transport/README.md "Sums in fewer
// bytes"). A layer sets out as soon as its gradients are there, the last one first, so
//   rest = max over layers l of  seconds of the stage's layers up to l
//                                - backward of its layers before l
// Empty for one replica, for more than 64 ranks, and if replicas average in groups (worker/groups
// handles slow nodes then). stages: as for modelled_exposed_sync.
SumsLeft modelled_sums(const schedule::Plan& plan, const planner::Model& model,
                       const SumLinks& links, const std::vector<schedule::StageTime>& stages);

// Seconds of exposed sync according to the links. Stage s ends its last backward earlier than stage
// 0 by the backwards of the stages before it, which hide that much of its sum:
//   max over s of  the rest of its sum - sum of b before s
// at least 0, and 0 without sums. stages: f, b of one micro-batch, b of a whole backward.
double modelled_exposed_sync(const schedule::Plan& plan, const planner::Model& model,
                             const SumLinks& links, const std::vector<schedule::StageTime>& stages);

// Exposed sync after a change of links, from the measured one and the model's values now and then.
// The part that the links do not explain stays. If the model expects more than was measured, only
// the ratio of its values counts.
double changed_exposed_sync(double measured, double modelled, double modelled_then);

}  // namespace weir::costing
