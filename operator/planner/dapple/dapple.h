// SPDX-License-Identifier: Apache-2.0
// The score by which DAPPLE's released planner ranks plans (compat `dapple`), and
// the best plan by it: R equal pipelines, stages of consecutive layers on r cards of each pipeline,
// cards on servers. Its oddities are kept (compiled-in bandwidths, fill without replication, one
// layer too many in AllReduce): figures compare with those that DAPPLE prints. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/base/result.h"

namespace weir::planner {

struct DappleProblem {
  // By layer, of one profiled batch: forward and backward in seconds, bytes to the next layer,
  // bytes of parameters.
  std::vector<double> seconds, output_bytes, parameter_bytes;
  int profile_batch = 1, global_batch = 1, micro_batch = 1;  // samples: PBS, GBS, mb
  std::vector<int> cards;                                    // by server
  std::int64_t most_steps = 10'000'000;                      // stages tried; above: not finished
};

struct DappleStage {
  int first = 0, end = 0;  // layers [first, end)
  int ranks = 1;           // cards of one pipeline
  std::vector<int> cards;  // of all pipelines, by server: sums to R x ranks
};

struct DapplePlan {
  int replicas = 1;  // R
  std::vector<DappleStage> stages;
  double seconds = 0;  // of a step
  double score = 0;    // speed-up over one card: what DAPPLE maximises
  // Every plan was looked at or excluded by a bound. Never true for more stages than micro-batches,
  // where the score rewards slow stages.
  bool finished = true;
};

// Seconds of a step; kInvalid: layers left out, too many cards, no micro-batch for a pipeline.
Result<double> dapple_seconds(const DappleProblem& problem, const DapplePlan& plan);

// kInvalid: nothing to plan. Cards may stay idle.
Result<DapplePlan> plan_dapple(const DappleProblem& problem);

}  // namespace weir::planner
