// SPDX-License-Identifier: Apache-2.0
// How foreign layers describe themselves: JSON (worker/stage/foreign/README.md "Description") as
// structs. Every limit on what they may say is checked here. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/base/result.h"
#include "worker/stage/layer.h"

namespace weir::stage {

struct LayerDescription {
  LayerInfo info;  // bytes for the precision
  std::vector<ParameterSpec> parameters;
  std::int64_t input_bytes_per_sample = 0;
};

struct ModelDescription {
  std::string name, engine, note;  // "LlamaForCausalLM"; the program that computes; a remark
  std::string export_json;         // `export` as it is; "" = none
  std::vector<LayerDescription> layers;
};

// kInvalid with one line that names the layer or the field. vocabulary: that of the job, which the
// description may confirm.
Result<ModelDescription> read_description(std::string_view json, Precision precision,
                                          int vocabulary);

}  // namespace weir::stage
