// SPDX-License-Identifier: Apache-2.0
// The Measure phase: measures the times of the model's layers on this worker's device and returns
// them as profile.json.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/emulate/profile_times.h"
#include "worker/protocol/messages.h"
#include "worker/stage/measure.h"

namespace weir::app {

struct ProfileOf {
  const stage::Model& model;
  device::Device& device;
  const emulate::ProfileTimes* emulation = nullptr;
  // Checkpoints are copied into the device's own memory, which the planner must count.
  bool saves = false;
};

// Times each layer on scratch memory. With emulated compute the times are those of the emulated
// profile. Blocks while measuring. The answer contains an error, if any. Engine thread.
protocol::Measured measure_profile(const ProfileOf& of, const protocol::Measure& request,
                                   std::stop_token stop);

}  // namespace weir::app
