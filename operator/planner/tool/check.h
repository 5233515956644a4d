// SPDX-License-Identifier: Apache-2.0
// The independent checker: from model, cluster and plan alone, node by node and edge by edge, it
// says what the plan costs and which rules it breaks. Shares only the parsers with the engines, so
// it finds their mistakes (tests/operator/planner/README.md "Checks", V2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/planner/model/model.h"
#include "worker/schedule/plan.h"

namespace weir::planner {

struct CheckedMemory {
  std::int64_t static_bytes = 0;      // parameters, gradients, optimizer
  std::int64_t stash_bytes = 0;       // of all micro-batches in flight
  std::int64_t transient_bytes = 0;   // largest of the stage's nodes
  std::int64_t buffer_bytes = 0;      // receive slots and send window
  std::int64_t total = 0, limit = 0;  // limit: after the reserve, the smallest rank; 0 = none
};

struct CheckedStage {
  std::vector<int> layers;  // indices of Model::layers, rising
  std::string device_class;
  int ranks = 1;                                 // of one replica
  double forward = 0, backward = 0, update = 0;  // seconds; micro-batch on all ranks, slowest rank
  double all_reduce = 0;                         // seconds a step, without the update
  std::int64_t cut_bytes = 0;                    // to the next stage; last: 0
  double send_forward = 0, send_backward = 0;    // seconds over the slowest pair of ranks
  CheckedMemory memory;
};

struct CheckedPlan {
  std::vector<CheckedStage> stages;
  std::vector<std::string> broken;  // one line per rule; empty: legal
};

struct CheckOptions {
  // Layer of each position that plan.stages counts; empty: the model's own order. A permutation,
  // predecessors first.
  std::vector<int> order;
  bool many_ranks = false;  // more than one rank per (replica, stage) is legal
  bool sync0 = false;       // the model of compat sync0: no buffers, no reserve, no transients
};

CheckedPlan check_plan(const Model& model, const Cluster& cluster, const schedule::Plan& plan,
                       const CheckOptions& options = {});

}  // namespace weir::planner
