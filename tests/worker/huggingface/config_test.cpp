// SPDX-License-Identifier: Apache-2.0
#include "worker/huggingface/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace weir::huggingface {
namespace config_test {

using nlohmann::json;
using stage::DecoderFamily;
using ::testing::HasSubstr;

// Llama 3.2 1B, shortened to what counts.
json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 2048},
          {"intermediate_size", 8192},
          {"num_hidden_layers", 16},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"head_dim", 64},
          {"vocab_size", 128256},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", 32.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}}},
          {"max_position_embeddings", 131072},
          {"tie_word_embeddings", true}};
}
json gpt2() {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"n_embd", 768},
          {"n_layer", 12},
          {"n_head", 12},
          {"vocab_size", 50257},
          {"attn_pdrop", 0},
          {"embd_pdrop", 0},
          {"resid_pdrop", 0}};
}

Config read(const json& document, const std::string& changes = "{}") {
  auto config = read_config(document.dump(), changes);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *std::move(config) : Config();
}
std::string refusal(const json& document, const std::string& changes = "{}") {
  const auto config = read_config(document.dump(), changes);
  return config ? "" : config.error().message;
}
json with(json document, const std::string& key, const json& value) {
  document[key] = value;
  return document;
}

TEST(Config, OfLlamaSaysAllOfItsShape) {
  const Config config = read(llama());

  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocabulary, 128256);
  EXPECT_EQ(config.longest, 131072);
  EXPECT_TRUE(config.tied);
  const stage::DecoderShape& shape = config.shape;
  EXPECT_EQ(shape.family, DecoderFamily::kLlama);
  EXPECT_EQ(shape.blocks, 16);
  EXPECT_EQ(shape.channels, 2048);
  EXPECT_EQ(shape.heads, 32);
  EXPECT_EQ(shape.kv_heads, 8);
  EXPECT_EQ(shape.head_size, 64);
  EXPECT_EQ(shape.ffn, 8192);
  EXPECT_EQ(shape.epsilon, 1e-5F);
  EXPECT_EQ(shape.theta, 5e5F);
  EXPECT_EQ(shape.rope_factor, 32);
  EXPECT_EQ(shape.rope_original, 8192);
  EXPECT_FALSE(shape.qkv_bias || shape.output_bias || shape.norms_heads);
  EXPECT_EQ(shape.window, 0);
}

TEST(Config, OfEachFamilyHasItsOwnBiasesNormsAndDefaults) {
  json plain = llama();
  for (const char* key : {"num_key_value_heads", "head_dim", "rope_theta", "rope_scaling",
                          "rms_norm_eps", "tie_word_embeddings"}) {
    plain.erase(key);
  }
  const auto of = [&](const char* name) {
    return read(with(plain, "architectures", json::array({name}))).shape;
  };
  EXPECT_EQ(of("LlamaForCausalLM").kv_heads, 32);
  EXPECT_EQ(of("LlamaForCausalLM").head_size, 64);
  EXPECT_EQ(of("LlamaForCausalLM").theta, 1e4F);
  EXPECT_EQ(of("LlamaForCausalLM").epsilon, 1e-6F);
  EXPECT_EQ(of("MistralForCausalLM").kv_heads, 8);
  EXPECT_EQ(of("MistralForCausalLM").window, 4096);
  EXPECT_TRUE(of("Qwen2ForCausalLM").qkv_bias);
  EXPECT_FALSE(of("Qwen2ForCausalLM").output_bias);
  EXPECT_TRUE(of("Qwen3ForCausalLM").norms_heads);
  EXPECT_EQ(of("Qwen3ForCausalLM").head_size, 128);
  EXPECT_FALSE(read(plain).tied);
  EXPECT_TRUE(read(gpt2()).tied);
  EXPECT_EQ(read(gpt2()).shape.positions, 1024);
}

TEST(Config, ReadsBothWaysToWriteRotaryPositions) {
  json five = llama();
  five.erase("rope_theta");
  five.erase("rope_scaling");
  five["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  EXPECT_EQ(read(five).shape.theta, 1e6F);
  EXPECT_EQ(read(five).shape.rope_factor, 1);
  EXPECT_EQ(read(with(llama(), "rope_scaling", nullptr)).shape.rope_factor, 1);
  five["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4}};
  EXPECT_EQ(refusal(five),
            "config.json: rope_parameters.rope_type: yarn is not built in (default, "
            "llama3)");
  EXPECT_THAT(refusal(with(llama(), "rope_scaling", {{"type", "linear"}, {"factor", 2}})),
              HasSubstr("rope_scaling.rope_type: linear is not built in"));
}

TEST(Config, OfMistralMayHaveNoWindow) {
  const json mistral = with(llama(), "architectures", {"MistralForCausalLM"});
  EXPECT_EQ(read(with(mistral, "sliding_window", nullptr)).shape.window, 0);
  EXPECT_EQ(read(with(mistral, "sliding_window", 128)).shape.window, 128);
}

TEST(Config, TakesChangesOfItsKeys) {
  EXPECT_EQ(read(llama(), R"({"rms_norm_eps": 0.5})").shape.epsilon, 0.5F);
  EXPECT_EQ(read(with(llama(), "rocket", 7), R"({"rocket": null})").shape.blocks, 16);
}

TEST(Config, NamesAKeyThatIsNotBuiltIn) {
  EXPECT_EQ(refusal(with(llama(), "rocket", 7)),
            "config.json: rocket: is not known to this version; --model-option rocket=null trains "
            "without it");
  EXPECT_EQ(refusal(with(llama(), "rocket", false)), "") << "something that is off";
  EXPECT_EQ(refusal(with(llama(), "mlp_bias", true)),
            "config.json: mlp_bias: true is not built in");
  EXPECT_EQ(refusal(with(llama(), "hidden_act", "gelu")),
            "config.json: hidden_act: gelu is not built in (silu)");
  EXPECT_EQ(refusal(with(llama(), "attention_dropout", 0.1)),
            "config.json: attention_dropout: 0.1 is not built in, layers have no dropout; "
            "--model-option attention_dropout=0 trains without");
  EXPECT_THAT(refusal(with(llama(), "auto_map", {{"AutoModel", "x.Y"}})),
              HasSubstr("code of its own (trust_remote_code)"));
  EXPECT_THAT(refusal(with(llama(), "quantization_config", {{"bits", 4}})),
              HasSubstr("quantized weights cannot be trained"));
  EXPECT_THAT(refusal(with(with(llama(), "architectures", {"Qwen2ForCausalLM"}), "layer_types",
                           {"full_attention", "sliding_attention"})),
              HasSubstr("layer_types: layers of several types are not built in"));
  json dropout = gpt2();
  dropout.erase("attn_pdrop");
  EXPECT_THAT(refusal(dropout), HasSubstr("attn_pdrop: 0.1 is not built in"));
  EXPECT_THAT(refusal(with(gpt2(), "n_inner", 100)), HasSubstr("n_inner"));
  EXPECT_THAT(refusal(with(gpt2(), "activation_function", "relu")), HasSubstr("relu"));
}

TEST(Config, NamesAnArchitectureThatIsNotBuiltIn) {
  EXPECT_EQ(refusal(with(llama(), "architectures", {"FooForCausalLM"})),
            "config.json: architecture FooForCausalLM is not built in (LlamaForCausalLM, "
            "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, GPT2LMHeadModel); weir-torch "
            "runs it");
}

TEST(Config, NamesAKeyThatIsMissingOrWrong) {
  json missing = llama();
  missing.erase("hidden_size");
  EXPECT_EQ(refusal(missing), "config.json: hidden_size: is missing");
  EXPECT_THAT(refusal(with(llama(), "hidden_size", "wide")), HasSubstr("is no whole number"));
  EXPECT_THAT(refusal(with(llama(), "hidden_size", -4)), HasSubstr("is no whole number"));
  EXPECT_THAT(refusal(with(llama(), "num_attention_heads", 0)), HasSubstr("below 1"));
  EXPECT_THAT(refusal(with(llama(), "num_key_value_heads", 5)),
              HasSubstr("config.json: kv heads: 5 do not divide heads 32"));
  EXPECT_THAT(refusal(with(llama(), "head_dim", 256)), HasSubstr("wider than 128 each"));
  EXPECT_THAT(refusal(with(llama(), "vocab_size", 1)), HasSubstr("vocab_size"));
  EXPECT_EQ(read_config("[1]").error().message, "config.json: is no JSON object");
}

TEST(Config, OfALlamaFromOptionsReadsAsItsShape) {
  const auto shape = stage::decoder_of(
      {.name = "llama", .blocks = 3, .width = 24, .heads = 4, .kv_heads = 2, .ffn = 40});
  ASSERT_TRUE(shape);
  const auto written = config_of(*shape, 64, 300);
  ASSERT_TRUE(written);
  const Config config = read(json::parse(*written));

  EXPECT_EQ(stage::facts_of(config.shape), stage::facts_of(*shape));
  EXPECT_EQ(config.shape.ffn, 40);
  EXPECT_EQ(config.vocabulary, 300);
  EXPECT_EQ(config.longest, 64);
  EXPECT_FALSE(config.tied);
  EXPECT_FALSE(config_of(*stage::decoder_of({.name = "gpt-tiny"}), 64, 300));
}

}  // namespace config_test
}  // namespace weir::huggingface
