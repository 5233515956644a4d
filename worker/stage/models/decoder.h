// SPDX-License-Identifier: Apache-2.0
// Decoder-only transformers as in GPT-2 (Radford et al., 2019): learnt positions, layer norm before
// each part, GELU, but an untied head. Layers: embed, block0 .. block{L-1}, head (with the final
// norm and the loss). Depth, width and heads follow table 2.1 of GPT-3 (Brown et al., 2020). There,
// gpt-1.3b has 24 heads of 128, which do not divide 2048; it has 16 heads here, like its
// successors.
#pragma once

#include "worker/stage/layer.h"
#include "worker/stage/stage.h"

namespace weir::stage {

struct GptSize {
  int blocks, channels, heads;
};
inline constexpr GptSize kGptTiny{6, 64, 4};
inline constexpr GptSize kGptMini{6, 192, 6};
inline constexpr GptSize kGpt125m{12, 768, 12};
inline constexpr GptSize kGpt350m{24, 1024, 16};
inline constexpr GptSize kGpt1300m{24, 2048, 16};

// The size that the options give to the model "gpt".
GptSize size_of(const ModelOptions& options);
// kInvalid names the option that no GPT can have.
Status check_gpt(GptSize size, const ModelOptions& options);
Layers build_gpt(GptSize size, const ModelOptions& options);

}  // namespace weir::stage
