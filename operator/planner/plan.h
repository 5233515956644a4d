// SPDX-License-Identifier: Apache-2.0
// Cuts a model into stages and gives each a rank. Pure. Here: the exact dynamic program over a
// chain of layers; ranks of one replica, one rank per stage. What a PlanReport promises is in
// planner.md 1.6.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/planner/model/model.h"
#include "worker/base/result.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/plan.h"

namespace weir::planner {

struct Request {
  int global_batch = 0;
  std::optional<int> micro_batch_size;  // unset: divisors of the global batch are tried
  std::optional<int> stages;            // unset: 1..number of devices
  schedule::Family family = schedule::Family::kKfkb;
  schedule::Dispatch dispatch = schedule::Dispatch::kHint;
  int k_min = 1, k_max = 8;      // clipped to M
  std::optional<int> k_initial;  // fixes k of this plan
  std::vector<int> caps;         // not empty: fixed by the user
};

// The planner's part of a plan: schedule, micro_batches, stages, ranks, idle,
// predicted_step_seconds. Revision, parent, trigger, uid and state are the caller's.
struct PlanReport {
  schedule::Plan plan;
  std::vector<schedule::StageTime> stage_times;           // per stage, of one micro-batch
  std::vector<std::int64_t> boundary_bytes;               // per boundary, of one micro-batch
  std::vector<std::int64_t> memory_bytes;                 // per stage
  double objective_seconds = 0, lower_bound_seconds = 0;  // of the cost model; equal when exact
};

// Errors: kInvalid with one line that names what does not fit (no stage fits into memory, batch not
// divisible, ...).
Result<PlanReport> plan(const Model& model, const Cluster& cluster, const Request& request);

// Stage times and boundary bytes of an existing cut, for the tuner. ranks[s] runs stage s.
struct PipelineCosts {
  std::vector<schedule::StageTime> stages;
  std::vector<std::int64_t> boundary_bytes;
  std::vector<std::int64_t> static_bytes, stash_bytes;  // per stage; stash of one micro-batch
  std::vector<std::int64_t> memory_limit;  // per stage, reserve not taken off; 0 = unknown
};
// Nothing for a model without layers; ranges beyond the model are clipped.
PipelineCosts costs_of(const Model& model, const Cluster& cluster, const schedule::Plan& plan);

}  // namespace weir::planner
