// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/models/llama_weights.h"

#include <utility>

namespace weir::stage {

LlamaWeights llama_weights(const DecoderLayerShape& shape, const std::string& path) {
  LlamaWeights weights;
  const std::int64_t c = shape.channels, f = shape.ffn,
                     q = std::int64_t{shape.heads} * shape.head_size;
  const std::int64_t kv = std::int64_t{shape.kv_heads} * shape.head_size;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> extents, float mean,
                       float deviation, bool late) {
    weights.specs.push_back({path + name, std::move(extents), mean, deviation, late});
    return weights.specs.size() - 1;
  };
  const auto weight = [&](const char* name, std::int64_t outputs, std::int64_t inputs) {
    return add(std::string(name) + ".weight", {outputs, inputs}, 0, shape.deviation, true);
  };
  const auto bias = [&](const char* name, std::int64_t outputs) {
    return add(std::string(name) + ".bias", {outputs}, 0, 0, true);
  };
  const auto scale = [&](const char* name, std::int64_t channels) {
    return add(std::string(name) + ".weight", {channels}, 1, 0, false);
  };
  weights.norm1 = scale("input_layernorm", c);
  weights.qkv = weight("self_attn.q_proj", q, c);
  weight("self_attn.k_proj", kv, c);
  weight("self_attn.v_proj", kv, c);
  if (shape.qkv_bias) {
    weights.qkv_bias = bias("self_attn.q_proj", q);
    bias("self_attn.k_proj", kv);
    bias("self_attn.v_proj", kv);
  }
  weights.output = weight("self_attn.o_proj", c, q);
  if (shape.output_bias) weights.output_bias = bias("self_attn.o_proj", c);
  if (shape.norms_heads) {
    weights.q_norm = scale("self_attn.q_norm", shape.head_size);
    weights.k_norm = scale("self_attn.k_norm", shape.head_size);
  }
  weights.norm2 = scale("post_attention_layernorm", c);
  weights.gate_up = weight("mlp.gate_proj", f, c);
  weight("mlp.up_proj", f, c);
  weights.down = weight("mlp.down_proj", c, f);
  return weights;
}

}  // namespace weir::stage
