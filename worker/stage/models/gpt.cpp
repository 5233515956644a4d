// SPDX-License-Identifier: Apache-2.0
// Builds a GPT from its layers.
#include "worker/stage/models/gpt.h"

#include "worker/stage/models/gpt_layers.h"

namespace weir::stage {

Layers build_gpt(GptSize size, const ModelOptions& options) {
  const GptShape shape{.sequence = options.sequence,
                       .vocabulary = options.vocabulary,
                       .channels = size.channels,
                       .heads = size.heads,
                       .blocks = size.blocks,
                       .element = element_bytes(options.precision)};
  Layers layers;
  layers.push_back(make_gpt_embed(shape));
  for (int i = 0; i < size.blocks; ++i) layers.push_back(make_gpt_block(shape, i));
  layers.push_back(make_gpt_head(shape));
  return layers;
}

}  // namespace weir::stage
