// SPDX-License-Identifier: Apache-2.0
// operator/planner/model/README.md "Sailor's files": layer times per micro-batch size and degree of
// tensor parallelism, and sizes; text to structs. A combination that was not profiled is not
// available, never extrapolated. No file access.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operator/planner/model/model.h"
#include "worker/base/result.h"

namespace weir::planner {

struct SailorTimes {  // of one kind of device
  // (samples of a micro-batch, degree) -> per layer forward, backward, update in seconds
  std::map<std::pair<int, int>, std::vector<std::array<double, 3>>> entries;
  std::size_t layers = 0;
};

struct SailorLayer {  // of one rank of that degree, a float has 4 bytes
  double parameter_floats = 0, output_floats = 0, activation_floats = 0;  // the last two per sample
};
using SailorSizes = std::map<int, std::vector<SailorLayer>>;  // degree -> layers

// kInvalid: "NAME:LINE: POINTER: reason".
Result<SailorTimes> decode_sailor_times(std::string_view json, const std::string& name);
// `model` is a key of llm_info.json, such as OPT-350.
Result<SailorSizes> decode_sailor_sizes(std::string_view json, const std::string& model,
                                        const std::string& name);

// A chain for the other engines: device class NAME with the times of degree 1, and of the lowest
// degree g profiled where 1 is not. kInvalid: numbers of layers differ.
Result<Model> model_of_sailor(const std::vector<std::pair<std::string, SailorTimes>>& classes,
                              const SailorSizes& sizes);

}  // namespace weir::planner
