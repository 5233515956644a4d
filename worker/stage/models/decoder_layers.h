// SPDX-License-Identifier: Apache-2.0
// The three kinds of layers of which gpt.cpp builds a model.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/stage/layer.h"

namespace weir::stage {

struct GptShape {
  int sequence, vocabulary, channels, heads, blocks;  // T, V, C, H, L
  std::int64_t element;                               // E: bytes of an activation
};

std::unique_ptr<Layer> make_gpt_embed(const GptShape& shape);
std::unique_ptr<Layer> make_gpt_block(const GptShape& shape, int index);
std::unique_ptr<Layer> make_gpt_head(const GptShape& shape);

// Standard deviation of initial weights (GPT-2).
inline constexpr float kGptDeviation = 0.02F;

}  // namespace weir::stage
