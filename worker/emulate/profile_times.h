// SPDX-License-Identifier: Apache-2.0
// The times of a profile.json (operator/planner/model/README.md "profile.json"): how long each op
// of a stage would take on another device.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "worker/base/result.h"
#include "worker/emulate/stages.h"
#include "worker/stage/measure.h"

namespace weir::emulate {

class ProfileTimes {
 public:
  // kInvalid: not JSON, an unknown apiVersion, a bad number, other layers than the model's, or no
  // times for the device class (the error names all classes). With an empty class, the profile must
  // have only one.
  static Result<ProfileTimes> decode(std::string_view json, const stage::Model& model,
                                     const std::string& device_class);
  // Reads the profile from a file; errors begin with its path.
  static Result<ProfileTimes> read(const std::string& path, const stage::Model& model,
                                   const std::string& device_class);

  const std::string& device_class() const { return device_class_; }
  // Times of one layer and micro-batch. Between sample counts of the profile they are linear; below
  // the smallest count they are its time; above the largest they are proportional. With scaling
  // "proportional" they are proportional everywhere.
  stage::LayerTiming layer(int index, int samples) const;
  // Sums over layers first..last. `update` is the time per step.
  StageTimes stage(int first_layer, int last_layer) const;

 private:
  std::string device_class_;
  bool interpolate_ = true;
  std::vector<std::vector<stage::LayerTiming>> layers_;  // per layer, by rising samples
};

}  // namespace weir::emulate
