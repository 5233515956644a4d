// SPDX-License-Identifier: Apache-2.0
// The config.json of a Hugging Face folder as a DecoderShape, and back. Pure. A key that would
// change the mathematics and is not built in is refused by its name, and so is a key that this
// version does not know, unless its value says that something is off.
#pragma once

#include <string>
#include <string_view>

#include "worker/base/result.h"
#include "worker/stage/models/decoder.h"

namespace weir::huggingface {

struct Config {
  std::string architecture;  // "LlamaForCausalLM"
  stage::DecoderShape shape;
  int vocabulary = 0;
  int longest = 0;          // tokens of a sample: max_position_embeddings, n_positions
  std::string longest_key;  // which of them
  bool tied = false;        // the head's weight is that of the embedding
  std::string json;         // the document, with the changes
};

// changes: a JSON object whose keys replace those of the document; null removes one. kInvalid names
// the key.
Result<Config> read_config(std::string_view text, std::string_view changes = "{}");

// The config.json of a decoder that is not from a folder. kInvalid: its parameters have no names of
// Hugging Face.
Result<std::string> config_of(const stage::DecoderShape& shape, int sequence, int vocabulary);

}  // namespace weir::huggingface
