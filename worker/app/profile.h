// SPDX-License-Identifier: Apache-2.0
// The Measure phase: times of the model's layers on this worker's device, as profile.json.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/app/emulation.h"
#include "worker/protocol/messages.h"
#include "worker/stage/measure.h"

namespace weir::app {

struct ProfileOf {
  const stage::Model& model;
  std::string device, device_class;
  const EmulationProfile* emulation = nullptr;
  bool saves = false;  // checkpoints, from the device's own memory: the planner counts their copy
};

// Times each layer on scratch memory; with emulated compute the times are the emulated profile's.
// Blocks for as long as measuring takes. The answer names the error if there is one. `device` is
// opened anew (device::open_device): the engine's belongs to the engine's thread.
protocol::Measured measure_profile(const ProfileOf& of, const protocol::Measure& request,
                                   std::stop_token stop);

}  // namespace weir::app
