// SPDX-License-Identifier: Apache-2.0
// The kinds of layers of which decoder.cpp builds a model.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/stage/models/decoder.h"

namespace weir::stage {

struct DecoderLayerShape : DecoderShape {
  int sequence = 0, vocabulary = 0;  // T, V
  std::int64_t element = 0;          // E: bytes of an activation
};

std::unique_ptr<Layer> make_decoder_embed(const DecoderLayerShape& shape);
std::unique_ptr<Layer> make_gpt_block(const DecoderLayerShape& shape, int index);
std::unique_ptr<Layer> make_llama_block(const DecoderLayerShape& shape, int index);
std::unique_ptr<Layer> make_decoder_head(const DecoderLayerShape& shape);

}  // namespace weir::stage
