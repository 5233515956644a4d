// SPDX-License-Identifier: Apache-2.0
// Steps that connect a worker to the others: key of the job, data port, agent. A
// worker with its own plan skips them.
#pragma once

#include "worker/app/steps.h"

namespace weir::app {

std::optional<Failure> join_job(State& state);
std::optional<Failure> open_transport(State& state);
std::optional<Failure> connect_to_coordinator(State& state);
void disconnect(State& state);

// Reports the last step to the coordinator. On the coordinator's worker, also waits for the others.
void say_finished(State& state);

}  // namespace weir::app
