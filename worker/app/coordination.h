// SPDX-License-Identifier: Apache-2.0
// The coordinator's role in this worker (worker/protocol/README.md "Terms"). The operator names the
// worker that has it: at the start the one of index 0, later perhaps another one. Without an
// operator it is always worker 0.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "worker/app/steps.h"

namespace weir::app {

// At the start: coordinates if this worker is named, or does nothing.
std::optional<Failure> run_coordinator(State& state);
void stop_coordinator(State& state);

// Address of the coordinator as the worker knows it at the start, "10.1.2.3:7070".
std::string coordinator_address(const State& state);

// Asks the operator who coordinates, takes the role or gives it up, and returns the address of the
// coordinator; "" = nothing is known that differs. May block for some seconds. On one thread at a
// time, and not while the steps of start or end run.
std::string find_coordinator(State& state, std::stop_token stop);

// Ends the worker with this exit code: the job cannot go on with it. Any thread.
void end_with(State& state, Exit exit, std::string reason);

}  // namespace weir::app
