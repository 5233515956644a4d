// SPDX-License-Identifier: Apache-2.0
// Depth, width and heads of the GPTs with a name follow table 2.1 of GPT-3 (Brown et al., 2020).
// There, gpt-1.3b has 24 heads of 128, which do not divide 2048; it has 16 heads here, like its
// successors.
#include "worker/stage/models/decoder.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "worker/stage/models/decoder_layers.h"

namespace weir::stage {
namespace {

constexpr int kMostBlocks = 1024, kMostWidth = 1 << 14, kMostFfn = 1 << 17;
constexpr int kMostHeadSize = 128;  // of the attention on CUDA devices
constexpr std::int64_t kMostElements = std::int64_t{1} << 31;

struct GptSize {
  const char* name;
  int blocks, channels, heads;
};
constexpr std::array<GptSize, 5> kGptSizes = {{{"gpt-tiny", 6, 64, 4},
                                               {"gpt-mini", 6, 192, 6},
                                               {"gpt-125m", 12, 768, 12},
                                               {"gpt-350m", 24, 1024, 16},
                                               {"gpt-1.3b", 24, 2048, 16}}};

// 0: the heads do not divide the width.
int head_size_of(int channels, int heads) {
  return heads > 0 && channels % heads == 0 ? channels / heads : 0;
}

DecoderShape gpt_of(int blocks, int channels, int heads, const ModelOptions& options) {
  return {.family = DecoderFamily::kGpt,
          .blocks = blocks,
          .channels = channels,
          .heads = heads,
          .kv_heads = heads,
          .head_size = head_size_of(channels, heads),
          .ffn = 4 * channels,
          .positions = options.sequence};
}

// As in Llama, the FFN is 8/3 of the width, here rounded up to a multiple of 8.
DecoderShape llama_of(const ModelOptions& options) {
  return {.family = DecoderFamily::kLlama,
          .blocks = options.blocks,
          .channels = options.width,
          .heads = options.heads,
          .kv_heads = options.kv_heads > 0 ? options.kv_heads : options.heads,
          .head_size = head_size_of(options.width, options.heads),
          .ffn = options.ffn > 0 ? options.ffn : (8 * options.width / 3 + 7) / 8 * 8,
          .full_names = true};
}

Status within(const char* name, int value, int most) {
  if (value >= 1 && value <= most) return Unit{};
  return invalid(name, std::to_string(value) + " is not within 1.." + std::to_string(most));
}

}  // namespace

std::optional<DecoderShape> decoder_of(const ModelOptions& options) {
  if (options.name == "llama") return llama_of(options);
  if (options.name == "gpt") return gpt_of(options.blocks, options.width, options.heads, options);
  const auto found = std::ranges::find(kGptSizes, options.name, &GptSize::name);
  if (found == kGptSizes.end()) return std::nullopt;
  return gpt_of(found->blocks, found->channels, found->heads, options);
}

Status check_decoder(const DecoderShape& shape, const ModelOptions& options) {
  WEIR_OK(within("layers", shape.blocks, kMostBlocks));
  WEIR_OK(within("width", shape.channels, kMostWidth));
  const bool is_llama = shape.family == DecoderFamily::kLlama;
  WEIR_OK(within("heads", shape.heads, is_llama ? kMostWidth : shape.channels));
  WEIR_OK(within("kv heads", shape.kv_heads, shape.heads));
  WEIR_OK(within("ffn", shape.ffn, kMostFfn));
  const std::string heads = std::to_string(shape.heads), width = std::to_string(shape.channels);
  if (shape.head_size == 0) return invalid("heads", heads + " do not divide width " + width);
  if (shape.heads % shape.kv_heads != 0) {
    return invalid("kv heads", std::to_string(shape.kv_heads) + " do not divide heads " + heads);
  }
  if (shape.head_size < 0 || shape.head_size > kMostHeadSize) {
    return invalid("heads", heads + " of width " + width + " are wider than " +
                                std::to_string(kMostHeadSize) + " each");
  }
  if (is_llama && shape.head_size % 2 != 0) {
    return invalid("heads", "the size " + std::to_string(shape.head_size) +
                                " of a head is odd; rotary positions need an even one");
  }
  // The widest values of a sample, and the table of tokens.
  const std::int64_t channels = shape.channels;
  const std::int64_t qkv =
      (shape.heads + 2 * std::int64_t{shape.kv_heads}) * std::int64_t{shape.head_size};
  const std::int64_t gates = is_llama ? 2 : 1;
  const std::int64_t widest = std::max(gates * shape.ffn, qkv);
  if (widest * options.sequence >= kMostElements ||
      channels * options.vocabulary >= kMostElements) {
    return invalid("width", width + " is too much for sequence " +
                                std::to_string(options.sequence) + " and vocabulary " +
                                std::to_string(options.vocabulary));
  }
  return Unit{};
}

Layers build_decoder(const DecoderShape& shape, const ModelOptions& options) {
  DecoderLayerShape of_layers;
  static_cast<DecoderShape&>(of_layers) = shape;
  of_layers.sequence = options.sequence;
  of_layers.vocabulary = options.vocabulary;
  of_layers.element = element_bytes(options.precision);
  const auto make_block = shape.family == DecoderFamily::kLlama ? make_llama_block : make_gpt_block;
  Layers layers;
  layers.push_back(make_decoder_embed(of_layers));
  for (int i = 0; i < shape.blocks; ++i) layers.push_back(make_block(of_layers, i));
  layers.push_back(make_decoder_head(of_layers));
  return layers;
}

const char* table_name(const DecoderShape& shape) {
  if (shape.family == DecoderFamily::kLlama) return "model.embed_tokens.weight";
  return shape.full_names ? "transformer.wte.weight" : "token.weight";
}

std::string facts_of(const DecoderShape& shape) {
  std::ostringstream text;
  text.precision(9);
  text << " heads " << shape.heads;
  if (shape.family == DecoderFamily::kGpt && !shape.full_names) return text.str();
  text << '/' << shape.kv_heads << " of " << shape.head_size << " epsilon " << shape.epsilon;
  if (shape.family == DecoderFamily::kGpt) return text.str();
  text << " theta " << shape.theta << " window " << shape.window;
  if (shape.rope_factor != 1) {
    text << " rope " << shape.rope_factor << ' ' << shape.rope_low << ' ' << shape.rope_high << ' '
         << shape.rope_original;
  }
  return text.str();
}

}  // namespace weir::stage
