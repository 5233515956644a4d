// SPDX-License-Identifier: Apache-2.0
// Times of a profile.json (operator/planner/model/README.md "profile.json") for emulated compute:
// what each op of a stage would take on another device.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "worker/base/result.h"
#include "worker/stage/measure.h"
#include "worker/stage/stage.h"

namespace weir::app {

class EmulationProfile {
 public:
  // kInvalid: not JSON, unknown apiVersion, a bad number, other layers than the model's, or no
  // times for this device class (all classes are named). An empty class: the only one there is.
  static Result<EmulationProfile> decode(std::string_view json, const stage::Model& model,
                                         const std::string& device_class);
  // Reads the file first; errors begin with its path.
  static Result<EmulationProfile> read(const std::string& path, const stage::Model& model,
                                       const std::string& device_class);

  const std::string& device_class() const { return device_class_; }
  // One layer and micro-batch: linear between the profile's sample counts, its least time below the
  // smallest, proportional above the largest (or everywhere with scaling "proportional").
  stage::LayerTiming layer(int index, int samples) const;
  // The sum over layers first..last; update: once a step.
  stage::EmulatedTimes stage(int first_layer, int last_layer) const;

 private:
  std::string device_class_;
  bool interpolate_ = true;
  std::vector<std::vector<stage::LayerTiming>> layers_;  // per layer, rising samples
};

}  // namespace weir::app
