// SPDX-License-Identifier: Apache-2.0
// The parameters of a block of Llama and its kin, with the names of Hugging Face, and where each
// lies in their list. q, k and v are neighbours, and so are gate and up.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "worker/stage/models/decoder_layers.h"

namespace weir::stage {

inline constexpr std::size_t kNoWeight = ~std::size_t{0};

struct LlamaWeights {
  std::vector<ParameterSpec> specs;
  std::size_t norm1 = 0, qkv = 0, output = 0, norm2 = 0, gate_up = 0, down = 0;
  // kNoWeight where the family has none.
  std::size_t qkv_bias = kNoWeight, output_bias = kNoWeight, q_norm = kNoWeight, k_norm = kNoWeight;
};

// path: "model.layers.3."
LlamaWeights llama_weights(const DecoderLayerShape& shape, const std::string& path);

}  // namespace weir::stage
