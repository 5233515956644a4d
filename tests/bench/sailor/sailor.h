// SPDX-License-Identifier: Apache-2.0
// Sailor's cost model: pipelines of D replicas whose stages run on groups of a kind of device and a
// degree of tensor parallelism. Evaluates any plan, and searches for one: cuts, kinds, degrees, D
// and micro-batch size together, one kind and degree per stage. Stages that mix kinds are costed,
// not searched; of replica counts with equal micro-batches only the smallest is tried.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "operator/planner/model/sailor_profile.h"
#include "tests/bench/sailor/network.h"
#include "worker/base/result.h"

namespace weir::planner {

struct SailorDevices {
  std::string name;  // of the profile and of the network's curves
  SailorTimes times;
  int count = 0;
  double memory_bytes = 0;
};

struct SailorProblem {
  std::vector<SailorDevices> devices;
  SailorSizes sizes;
  SailorNetwork network;
  int global_batch = 1024;
  int most_degree = 4;                    // devices per server
  std::int64_t most_steps = 200'000'000;  // extensions of partial plans; above: status heuristic
};

struct SailorGroup {
  int device = 0, degree = 1;  // index into devices
  int replicas = 0;            // so many of the D run this stage so
};

struct SailorStage {
  int first = 0, end = 0;  // layers
  std::vector<SailorGroup> groups;
};

struct SailorPlan {
  int replicas = 1, micro_batch_size = 1;
  std::vector<SailorStage> stages;
  double seconds = 0;
  bool finished = true;  // the search was not cut short by most_steps
  std::int64_t steps = 0;
};

// Seconds of a step. kInvalid: a combination without profile, too many devices, no memory.
Result<double> sailor_seconds(const SailorProblem& problem, const SailorPlan& plan);

// The best plan found. kInvalid: nothing fits.
Result<SailorPlan> plan_sailor(const SailorProblem& problem);

}  // namespace weir::planner
