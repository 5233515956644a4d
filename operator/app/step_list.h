// SPDX-License-Identifier: Apache-2.0
// A program as an ordered list of named steps over one state (after Falco's app.cpp). The steps
// that have started are stopped in reverse order, also after an error.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/base/log.h"
#include "worker/base/result.h"

namespace weir::operator_app {

template <class State>
struct Step {
  std::string name;
  std::function<Status(State&)> start;
  std::function<void(State&)> stop;  // may be empty; bounds its own time
};

// Runs all steps, then stops them. An error is that of the first step that failed, with its name.
template <class State>
Status run_steps(const std::vector<Step<State>>& steps, State& state) {
  std::size_t started = 0;
  Status result = Unit{};
  for (const Step<State>& step : steps) {
    log_debug("app", "step", {{"name", step.name}});
    result = step.start(state);
    if (!result) {
      result = result.error().with(step.name);
      break;
    }
    ++started;
  }
  while (started-- > 0) {
    if (steps[started].stop) steps[started].stop(state);
  }
  return result;
}

}  // namespace weir::operator_app
