// SPDX-License-Identifier: Apache-2.0
// Builds a GPT from its layers.
#include "worker/stage/models/decoder.h"

#include "worker/stage/models/decoder_layers.h"

namespace weir::stage {
namespace {

constexpr int kMostBlocks = 1024, kMostWidth = 1 << 14;
constexpr int kMostHeadSize = 128;  // of the attention on CUDA devices
constexpr std::int64_t kMostElements = std::int64_t{1} << 31;

Status within(const char* name, int value, int most) {
  if (value >= 1 && value <= most) return Unit{};
  return invalid(name, std::to_string(value) + " is not within 1.." + std::to_string(most));
}

}  // namespace

GptSize size_of(const ModelOptions& options) {
  return {.blocks = options.blocks, .channels = options.width, .heads = options.heads};
}

Status check_gpt(GptSize size, const ModelOptions& options) {
  WEIR_OK(within("layers", size.blocks, kMostBlocks));
  WEIR_OK(within("width", size.channels, kMostWidth));
  WEIR_OK(within("heads", size.heads, size.channels));
  const std::string heads = std::to_string(size.heads), width = std::to_string(size.channels);
  if (size.channels % size.heads != 0)
    return invalid("heads", heads + " do not divide width " + width);
  if (size.channels / size.heads > kMostHeadSize) {
    return invalid("heads", heads + " of width " + width + " are wider than " +
                                std::to_string(kMostHeadSize) + " each");
  }
  // The widest values of a sample, 4 C for each token, and the table of tokens.
  const std::int64_t channels = size.channels;
  if (4 * channels * options.sequence >= kMostElements ||
      channels * options.vocabulary >= kMostElements) {
    return invalid("width", width + " is too much for sequence " +
                                std::to_string(options.sequence) + " and vocabulary " +
                                std::to_string(options.vocabulary));
  }
  return Unit{};
}

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
