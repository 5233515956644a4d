// SPDX-License-Identifier: Apache-2.0
// Costs of a given plan: the event simulator over the model and the links of the ranks that the
// plan names (`weir-operator simulate`). Pure. Legality is check.h's business.
#pragma once

#include <string>
#include <vector>

#include "operator/planner/plan.h"
#include "operator/planner/sync/step_forms.h"
#include "worker/schedule/simulator.h"

namespace weir::planner {

struct ShareChange {  // from then on, of one direction
  double seconds = 0;
  std::string from_node, to_node;
  double share = 1;
};

struct SimulatedReplica {
  Pipeline pipeline;
  schedule::Timeline timeline;  // with ops and sends
};
struct SimulatedPlan {
  double step_seconds = 0;  // of the slowest replica, with AllReduce and optimizer
  std::vector<SimulatedReplica> replicas;
  std::vector<StageMemoryReport> memory;  // by stage
  StepForms forms;                        // of the first replica
  double split_bound_seconds = 0;         // of the first replica; 0: no layer splits
  double period_seconds = 0;
  std::string period_cause;
};

// kInvalid: a stage without ranks, a rank on no device of the cluster, ranks of a stage on unlike
// devices, times that do not run. order: see check.h. start: where the changes go on.
Result<SimulatedPlan> simulate_plan(const Model& model, const Cluster& cluster,
                                    const schedule::Plan& plan, const std::vector<int>& order = {},
                                    const std::vector<ShareChange>& changes = {},
                                    double start_seconds = 0);

}  // namespace weir::planner
