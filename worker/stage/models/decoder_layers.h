// SPDX-License-Identifier: Apache-2.0
// The kinds of layers of which decoder.cpp builds a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/stage/models/decoder.h"

namespace weir::stage {

struct DecoderLayerShape : DecoderShape {
  int sequence = 0, vocabulary = 0;  // T, V
  std::int64_t element = 0;          // E: bytes of an activation
};

constexpr std::int64_t kFloat = sizeof(float);  // statistics and logarithms, whatever the precision
// Memory that a layer keeps or holds, by its place in the list of that layer.
inline ops::Element* kept(const KeptActivations& activations, std::size_t what) {
  return activations.buffers[what].as<ops::Element>();
}
inline float* kept_floats(const KeptActivations& activations, std::size_t what) {
  return activations.buffers[what].as<float>();
}

std::unique_ptr<Layer> make_decoder_embed(const DecoderLayerShape& shape);
std::unique_ptr<Layer> make_gpt_block(const DecoderLayerShape& shape, int index);
std::unique_ptr<Layer> make_llama_block(const DecoderLayerShape& shape, int index);
std::unique_ptr<Layer> make_decoder_head(const DecoderLayerShape& shape);

}  // namespace weir::stage
