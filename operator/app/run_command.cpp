// SPDX-License-Identifier: Apache-2.0
// `weir-operator run`: the whole list of steps.
#include <iostream>

#include "operator/app/run_state.h"

namespace weir::operator_app {

std::vector<RunStep> run_steps_list() {
  std::vector<RunStep> all;
  for (auto part : {connection_steps, cache_steps, leading_steps, serving_steps, lease_steps}) {
    for (RunStep& step : part()) all.push_back(std::move(step));
  }
  return all;
}

int run_command(const Options& options) {
  if (options.dry_run) {
    for (const RunStep& step : run_steps_list()) std::cout << step.name << "\n";
    return 0;
  }
  RunState state(options);
  const Status result = run_steps(run_steps_list(), state);
  if (result || result.error().code == Code::kCancelled) {
    log_info("app", "stopped");
    return 0;
  }
  log_error("app", "cannot run", {{"error", result.error().message}});
  return result.error().code == Code::kInvalid ? 2 : 1;
}

}  // namespace weir::operator_app
