// SPDX-License-Identifier: Apache-2.0
// A decoder-only transformer as a struct: everything that options or a config.json of Hugging Face
// say of it, and its layers: embed, block0 .. block{L-1}, head (with the final norm and the loss).
#pragma once

#include <string>

#include "worker/stage/layer.h"
#include "worker/stage/stage.h"

namespace weir::stage {

enum class DecoderFamily : unsigned char {
  kGpt,    // GPT-2: learnt positions, layer norm, GELU, biases everywhere
  kLlama,  // Llama and its kin: rotary positions, RMS norm, SwiGLU
};

struct DecoderShape {
  DecoderFamily family = DecoderFamily::kGpt;
  int blocks = 0, channels = 0;                // L, C
  int heads = 0, kv_heads = 0, head_size = 0;  // H, G (divides H), D; GPT: G = H, D = C/H
  int ffn = 0;                                 // F: width between the products of the MLP; GPT: 4 C
  float epsilon = 1e-5F;                       // of norms
  // Standard deviation of initial weights (GPT-2 and Llama).
  float deviation = 0.02F;
  // Names of parameters: those of Hugging Face with the whole path, which are unique in the model,
  // or short ones. Llama always has the former.
  bool full_names = false;
  bool tied = false;  // the projection to the vocabulary is the embedding's table

  int positions = 0;  // GPT: rows of the table of positions, at least T

  // Llama. Whether q, k and v have biases, the product after the attention has one, and q and k are
  // normed by head.
  bool qkv_bias = false, output_bias = false, norms_heads = false;
  int window = 0;  // tokens that a token sees, itself included; 0 = all before it
  float theta = 1e4F;
  float rope_factor = 1, rope_low = 1, rope_high = 4, rope_original = 8192;  // ops/rotary.h
};

// The decoder that the options describe: --model=llama, gpt, or gpt-tiny and its kin. Nothing for
// other names.
std::optional<DecoderShape> decoder_of(const ModelOptions& options);
// kInvalid names the option that no such decoder can have.
Status check_decoder(const DecoderShape& shape, const ModelOptions& options);
Layers build_decoder(const DecoderShape& shape, const ModelOptions& options);
const char* table_name(const DecoderShape& shape);  // of the embedding's table of tokens
// Text for a digest: facts that the shapes of the parameters do not show.
std::string facts_of(const DecoderShape& shape);

}  // namespace weir::stage
