// SPDX-License-Identifier: Apache-2.0
// Steps that open what a worker computes with and tells by: device, model, data, metrics endpoint.
// A failure is the user's: the option that is wrong, and why.
#pragma once

#include "worker/app/steps.h"

namespace weir::app {

std::optional<Failure> open_device(State& state);
std::optional<Failure> load_model(State& state);  // after open_device
// Also the loss log and the trace file.
std::optional<Failure> open_data(State& state);  // after load_model
std::optional<Failure> open_metrics(State& state);

}  // namespace weir::app
