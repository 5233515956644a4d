// SPDX-License-Identifier: Apache-2.0
// A missing key means what the classes of transformers 5.23 make of it.
#include "worker/huggingface/config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "worker/huggingface/config_keys.h"

namespace weir::huggingface {
namespace {

using nlohmann::json;
using stage::DecoderFamily;

struct Architecture {
  const char *name, *model_type;
  DecoderFamily family;
  int key_value_heads;  // if the key is missing; 0 = as many as heads
  int head_size;        // likewise; 0 = width / heads
  int longest;
  int window;  // 0 = none
  bool qkv_bias, norms_heads, tied;
};
constexpr std::array<Architecture, 5> kArchitectures = {
    {{"LlamaForCausalLM", "llama", DecoderFamily::kLlama, 0, 0, 2048, 0, false, false, false},
     {"MistralForCausalLM", "mistral", DecoderFamily::kLlama, 8, 0, 131072, 4096, false, false,
      false},
     {"Qwen2ForCausalLM", "qwen2", DecoderFamily::kLlama, 32, 0, 32768, 0, true, false, false},
     {"Qwen3ForCausalLM", "qwen3", DecoderFamily::kLlama, 32, 128, 32768, 0, false, true, false},
     {"GPT2LMHeadModel", "gpt2", DecoderFamily::kGpt, 0, 0, 1024, 0, true, false, true}}};

constexpr double kMostNumber = 1e12;  // of any key here, and far below the largest float

// Keys that do not change what layers compute in training.
constexpr auto kHarmless = std::to_array<const char*>({"architectures",
                                                       "bad_words_ids",
                                                       "bos_token_id",
                                                       "cls_token_id",
                                                       "decoder_start_token_id",
                                                       "dtype",
                                                       "eos_token_id",
                                                       "finetuning_task",
                                                       "gradient_checkpointing",
                                                       "id2label",
                                                       "is_decoder",
                                                       "is_llama_config",
                                                       "label2id",
                                                       "max_length",
                                                       "model_type",
                                                       "n_ctx",
                                                       "num_labels",
                                                       "pad_token_id",
                                                       "problem_type",
                                                       "return_dict",
                                                       "sep_token_id",
                                                       "summary_activation",
                                                       "summary_first_dropout",
                                                       "summary_proj_to_labels",
                                                       "summary_type",
                                                       "summary_use_proj",
                                                       "task_specific_params",
                                                       "tokenizer_class",
                                                       "torch_dtype",
                                                       "transformers.js_config",
                                                       "transformers_version",
                                                       "unk_token_id",
                                                       "use_cache",
                                                       "output_attentions"});

bool is_harmless(const std::string& key) {
  return key.starts_with('_') || std::ranges::find(kHarmless, key) != kHarmless.end();
}

std::string names() {
  std::string all;
  for (const auto& one : kArchitectures) all += (all.empty() ? "" : ", ") + std::string(one.name);
  return all;
}

Result<Architecture> architecture_of(ConfigKeys& keys) {
  std::string name;
  const json* list = keys.take("architectures");
  if (list != nullptr && list->is_array() && !list->empty() && list->front().is_string()) {
    name = list->front().get<std::string>();
  }
  WEIR_TRY(const std::string type, keys.text("model_type", ""));
  for (const auto& one : kArchitectures) {
    if (name.empty() ? type == one.model_type : name == one.name) return one;
  }
  return invalid("config.json: architecture " + (name.empty() ? "of model_type " + type : name) +
                 " is not built in (" + names() + "); weir-torch runs it");
}

Status must_be_zero(ConfigKeys& keys, const char* key, double usual) {
  WEIR_TRY(const double value, keys.number(key, usual));
  if (value == 0) return Unit{};
  return keys.wrong(key, json(value).dump() +
                             " is not built in, layers have no dropout; --model-option " + key +
                             "=0 trains without");
}

// Reads rotary positions: transformers 5 has all in rope_parameters, 4 has rope_theta beside
// rope_scaling.
Status read_rope(ConfigKeys& keys, stage::DecoderShape& shape) {
  WEIR_TRY(double theta, keys.number("rope_theta", 1e4));
  const json* scaling = keys.take("rope_parameters");
  const char* name = "rope_parameters.";
  if (const json* old = keys.take("rope_scaling"); scaling == nullptr && old != nullptr) {
    scaling = old;
    name = "rope_scaling.";
  }
  ConfigKeys rope(scaling != nullptr && scaling->is_object() ? *scaling : json::object(), name);
  WEIR_TRY(theta, rope.number("rope_theta", theta));
  WEIR_TRY(const std::string old_type, rope.text("type", "default"));
  WEIR_TRY(const std::string type, rope.text("rope_type", old_type));
  if (!(theta > 0 && theta < kMostNumber)) return rope.wrong("rope_theta", "is not above 0");
  shape.theta = static_cast<float>(theta);
  WEIR_TRY(const double partial, keys.number("partial_rotary_factor", 1));
  WEIR_TRY(const double partial_there, rope.number("partial_rotary_factor", partial));
  if (partial_there != 1) return rope.wrong("partial_rotary_factor", "is not built in; only 1 is");
  if (type == "llama3") {
    WEIR_TRY(const double factor, rope.number("factor"));
    WEIR_TRY(const double low, rope.number("low_freq_factor"));
    WEIR_TRY(const double high, rope.number("high_freq_factor"));
    WEIR_TRY(const int original, rope.whole("original_max_position_embeddings"));
    if (!(factor >= 1 && factor < kMostNumber) || !(low > 0) || !(high > low) ||
        !(high < kMostNumber) || original < 1) {
      return rope.wrong("factor", "needs factor >= 1 and high_freq_factor > low_freq_factor > 0");
    }
    shape.rope_factor = static_cast<float>(factor);
    shape.rope_low = static_cast<float>(low);
    shape.rope_high = static_cast<float>(high);
    shape.rope_original = static_cast<float>(original);
  } else if (type != "default") {
    return rope.wrong("rope_type", type + " is not built in (default, llama3)");
  }
  if (const auto rest = rope.unread(); !rest.empty()) {
    return rope.wrong(rest.front(), "is not known to this version");
  }
  return Unit{};
}

// The window of all layers; 0 = none. Layers of several types are refused.
Result<int> window_of(ConfigKeys& keys, const Architecture& of) {
  const int missing = keys.has("sliding_window") ? 0 : of.window;  // null is none
  WEIR_TRY(const int window, keys.whole("sliding_window", missing));
  WEIR_TRY(const bool used, keys.flag("use_sliding_window", of.window > 0));
  static_cast<void>(keys.take("max_window_layers"));
  const json* types = keys.take("layer_types");
  if (types == nullptr || !types->is_array()) {
    if (used && of.window == 0) {
      return keys.wrong("use_sliding_window", "is not built in without layer_types");
    }
    return used ? window : 0;
  }
  const auto all_are = [types](const char* type) {
    return std::ranges::all_of(*types, [type](const json& one) { return one == type; });
  };
  if (all_are("full_attention")) return 0;
  if (all_are("sliding_attention")) return window;
  return keys.wrong("layer_types",
                    "layers of several types are not built in; weir-torch runs them");
}

Result<stage::DecoderShape> read_llama(ConfigKeys& keys, const Architecture& of) {
  stage::DecoderShape shape{.family = DecoderFamily::kLlama, .full_names = true};
  WEIR_TRY(shape.blocks, keys.whole("num_hidden_layers"));
  WEIR_TRY(shape.channels, keys.whole("hidden_size"));
  WEIR_TRY(shape.heads, keys.whole("num_attention_heads"));
  const int groups = of.key_value_heads > 0 ? of.key_value_heads : shape.heads;
  WEIR_TRY(shape.kv_heads, keys.whole("num_key_value_heads", groups));
  if (shape.heads < 1) return keys.wrong("num_attention_heads", "is below 1");
  const bool divides = shape.channels % shape.heads == 0;
  const int own = of.head_size > 0 ? of.head_size : divides ? shape.channels / shape.heads : 0;
  WEIR_TRY(shape.head_size, keys.whole("head_dim", own));
  WEIR_TRY(shape.ffn, keys.whole("intermediate_size"));
  WEIR_TRY(const double epsilon, keys.number("rms_norm_eps", 1e-6));
  shape.epsilon = static_cast<float>(epsilon);
  WEIR_TRY(const std::string activation, keys.text("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return keys.wrong("hidden_act", activation + " is not built in (silu)");
  }
  WEIR_TRY(const bool bias, keys.flag("attention_bias", false));
  shape.qkv_bias = of.qkv_bias || bias;
  shape.output_bias = bias;
  shape.norms_heads = of.norms_heads;
  WEIR_OK(keys.must_be_off("mlp_bias", "true is not built in"));
  WEIR_OK(must_be_zero(keys, "attention_dropout", 0));
  WEIR_TRY(const int slices, keys.whole("pretraining_tp", 1));
  if (slices != 1) return keys.wrong("pretraining_tp", "is not built in; only 1 is");
  WEIR_OK(keys.must_be_off("rope_interleaved", "true is not built in"));
  WEIR_TRY(shape.window, window_of(keys, of));
  WEIR_OK(read_rope(keys, shape));
  return shape;
}

Result<stage::DecoderShape> read_gpt2(ConfigKeys& keys) {
  stage::DecoderShape shape{.family = DecoderFamily::kGpt, .full_names = true};
  WEIR_TRY(shape.blocks, keys.whole("n_layer"));
  WEIR_TRY(shape.channels, keys.whole("n_embd"));
  WEIR_TRY(shape.heads, keys.whole("n_head"));
  shape.kv_heads = shape.heads;
  if (shape.heads > 0 && shape.channels % shape.heads == 0) {
    shape.head_size = shape.channels / shape.heads;
  }
  if (shape.channels > (1 << 20)) return keys.wrong("n_embd", "is too large");
  shape.ffn = 4 * shape.channels;
  WEIR_TRY(const int inner, keys.whole("n_inner", shape.ffn));
  if (inner != shape.ffn) return keys.wrong("n_inner", "is not built in; only 4 n_embd is");
  WEIR_TRY(const double epsilon, keys.number("layer_norm_epsilon", 1e-5));
  shape.epsilon = static_cast<float>(epsilon);
  WEIR_TRY(const std::string activation, keys.text("activation_function", "gelu_new"));
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    return keys.wrong("activation_function", activation + " is not built in (gelu_new)");
  }
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) {
    WEIR_OK(must_be_zero(keys, key, 0.1));
  }
  WEIR_TRY(const bool scaled, keys.flag("scale_attn_weights", true));
  if (!scaled) return keys.wrong("scale_attn_weights", "false is not built in");
  for (const char* key :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"}) {
    WEIR_OK(keys.must_be_off(key, "true is not built in"));
  }
  return shape;
}

// Makes the error of a check, which names options, one of the file.
Error of_file(const Error& error) {
  return error.with("config.json");
}

}  // namespace

Result<Config> read_config(std::string_view text, std::string_view changes) {
  json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return invalid("config.json", "is no JSON object");
  const json changed = json::parse(changes, nullptr, false);
  if (!changed.is_object()) return invalid("config.json", "its changes are no JSON object");
  document.merge_patch(changed);
  ConfigKeys keys(document);
  WEIR_OK(keys.must_be_off("auto_map",
                           "the model has code of its own (trust_remote_code); put the code into "
                           "a model.py for weir-torch"));
  WEIR_OK(keys.must_be_off("quantization_config", "quantized weights cannot be trained"));
  WEIR_TRY(const Architecture of, architecture_of(keys));
  Config config{.architecture = of.name, .json = document.dump()};
  const bool is_gpt = of.family == DecoderFamily::kGpt;
  WEIR_TRY(config.shape, is_gpt ? read_gpt2(keys) : read_llama(keys, of));
  config.longest_key = is_gpt ? "n_positions" : "max_position_embeddings";
  WEIR_TRY(config.longest, keys.whole(config.longest_key, of.longest));
  if (is_gpt) config.shape.positions = config.longest;
  WEIR_TRY(config.vocabulary, keys.whole("vocab_size"));
  WEIR_TRY(config.tied, keys.flag("tie_word_embeddings", of.tied));
  WEIR_TRY(const double deviation, keys.number("initializer_range", 0.02));
  if (!(deviation >= 0 && deviation < kMostNumber)) {
    return keys.wrong("initializer_range", "is below 0 or too large");
  }
  config.shape.deviation = static_cast<float>(deviation);
  for (const std::string& key : keys.unread()) {
    if (is_harmless(key)) continue;
    return keys.wrong(
        key, "is not known to this version; --model-option " + key + "=null trains without it");
  }
  const Status possible = stage::check_decoder(
      config.shape, {.sequence = 1, .vocabulary = std::max(2, config.vocabulary)});
  if (!possible) return of_file(possible.error());
  if (!(config.shape.epsilon > 0 && config.shape.epsilon < 1) || config.longest < 1 ||
      config.vocabulary < 2) {
    return invalid("config.json: vocab_size, " + config.longest_key + " or epsilon is too small");
  }
  return config;
}

Result<std::string> config_of(const stage::DecoderShape& shape, int sequence, int vocabulary) {
  if (shape.family != DecoderFamily::kLlama) {
    return invalid(
        "export: models of this name have no counterpart in Hugging Face; llama and "
        "those of --model=hf:DIR have");
  }
  return json{{"architectures", {"LlamaForCausalLM"}},
              {"model_type", "llama"},
              {"hidden_size", shape.channels},
              {"intermediate_size", shape.ffn},
              {"num_hidden_layers", shape.blocks},
              {"num_attention_heads", shape.heads},
              {"num_key_value_heads", shape.kv_heads},
              {"head_dim", shape.head_size},
              {"vocab_size", vocabulary},
              {"hidden_act", "silu"},
              {"rms_norm_eps", 1e-5},
              {"rope_theta", 1e4},
              {"max_position_embeddings", sequence},
              {"attention_bias", false},
              {"mlp_bias", false},
              {"initializer_range", 0.02},
              {"tie_word_embeddings", false}}
      .dump();
}

}  // namespace weir::huggingface
