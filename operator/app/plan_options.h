// SPDX-License-Identifier: Apache-2.0
// Options of `weir-operator plan` and `simulate`: operator/planner/README.md "The tool".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weir::operator_app {

struct InputOptions {
  std::string profile;  // a file, "-", or "sailor:CLASS=FILE[,CLASS=FILE]"
  std::string cluster;  // a file, "-", or the short form 4xA:32e9@1e9
  std::string sailor_info, sailor_model;
};

struct PlanOptions {
  InputOptions inputs;
  std::string objective = "sync", caps = "kfkb", split = "auto", compat, compare;
  int k_max = 8;
  std::optional<int> global_batch, micro_batch, micro_batches, stages, ranks_per_stage;
  int data_parallel = 1;
  bool use_all_devices = false, keep_order = false;
  bool json = false, explain = false, require_optimal = false;
  double tolerance = 1e-6;
  std::int64_t max_ideals = 2'000'000;
  double max_memory = 1073741824;  // bytes
  double time_limit = 0;           // seconds; 0 = none
  int threads = 1;
  std::string out;  // file for the plan document
};

struct SimulateOptions {
  InputOptions inputs;
  std::string plan;  // a file, "-", or a short chain 0-16x3,17-39x1
  std::optional<int> k, micro_batches;
  std::vector<int> caps;
  std::string dispatch;            // "" = that of the plan
  std::vector<std::string> share;  // FROM:TO=X
  std::string share_trace;         // CSV seconds,from,to,share
  int steps = 1;
  std::string timeline;  // file to write: a picture if its name ends in .svg, else a Chrome trace
  bool json = false, text_timeline = false;
};

void add_plan_options(CLI::App& app, PlanOptions& options);
void add_simulate_options(CLI::App& app, SimulateOptions& options);

}  // namespace weir::operator_app
