// SPDX-License-Identifier: Apache-2.0
// Reads the files and short forms of `plan` and `simulate` as models, clusters and plans.
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
  std::string model_name, cluster_name;  // for messages and tables
  int profile_samples = 1;               // samples in the profiled mini-batch
};

// File "-" stands for standard_input. An error is one line: "NAME:LINE: reason".
Result<std::string> read_text(const std::string& file, std::istream& standard_input);
Result<PlanInputs> read_inputs(const InputOptions& options, std::istream& standard_input);

struct PlanToSimulate {
  schedule::Plan plan;
  std::vector<int> order;  // model layer at each position of the plan; empty = the model's order
};
// Reads a plan document, the output of plan --json, or a short chain. The stages of a chain get
// devices in the order of the cluster.
Result<PlanToSimulate> read_plan(const SimulateOptions& options, const PlanInputs& inputs,
                                 std::istream& standard_input);

}  // namespace weir::operator_app
