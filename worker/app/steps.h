// SPDX-License-Identifier: Apache-2.0
// The program as an ordered list: each step succeeds or fails with an exit code. The list is always
// undone in reverse.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/app/state.h"
#include "worker/protocol/exit_codes.h"

namespace weir::app {

using protocol::Exit;

struct Failure {
  Exit exit = Exit::kConfiguration;
  std::string message;  // one line
};

struct Step {
  const char* name;
  std::optional<Failure> (*run)(State&);  // returns nothing to go on
  void (*undo)(State&);                   // may be null
};

const std::vector<Step>& steps();

// The text of --describe, after the steps that it needs.
Result<std::string> description(State& state);

// Runs all steps, then undoes them. Returns the exit code of the process.
int run_steps(State& state);

}  // namespace weir::app
