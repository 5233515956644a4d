// SPDX-License-Identifier: Apache-2.0
// Files and short forms of `plan` and `simulate` as models, clusters and plans.
#pragma once

#include <iosfwd>
#include <string>

#include "operator/app/plan_options.h"
#include "operator/planner/model/model.h"
#include "worker/base/result.h"
#include "worker/schedule/plan.h"

namespace weir::operator_app {

// Exit codes of operator/planner/README.md "The tool".
constexpr int kInternalError = 1, kBadInput = 3, kNoPlanFits = 4, kPlanBreaksARule = 5,
              kNotOptimal = 6, kInterrupted = 130;

struct PlanInputs {
  planner::Model model;
  planner::Cluster cluster;
  std::string model_name, cluster_name;  // for people
  int profile_samples = 1;               // of the profiled mini-batch
};

// "-" is `standard_input`. Errors are one line: "NAME:LINE: reason".
Result<std::string> read_text(const std::string& file, std::istream& standard_input);
Result<PlanInputs> read_inputs(const InputOptions& options, std::istream& standard_input);

// A plan for `simulate`: the document, the object of plan --json, or a short chain; a chain gets
// devices in the order of the cluster. `order`: positions that the layers count, empty = the
// model's.
struct PlanToSimulate {
  schedule::Plan plan;
  std::vector<int> order;
};
Result<PlanToSimulate> read_plan(const SimulateOptions& options, const PlanInputs& inputs,
                                 std::istream& standard_input);

}  // namespace weir::operator_app
