// SPDX-License-Identifier: Apache-2.0
// Short ways to make small models, to feed them and to compare them bit by bit.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/frozen_layers.h"
#include "worker/base/random.h"
#include "worker/stage/models/decoder.h"
#include "worker/stage/stage.h"

namespace weir::test {

// A Llama with all that its kin have: biases, norms by head, a window of tokens, heads of another
// size than width / heads.
inline constexpr const char* kEverything = "llama-with-everything";
class EverythingModel final : public stage::LayerSource {
 public:
  explicit EverythingModel(stage::ModelOptions options) : options_(std::move(options)) {}
  std::string name() const override { return kEverything; }
  std::string engine() const override { return ""; }
  stage::Layers layers() const override { return stage::build_decoder(shape(), options_); }
  std::string facts() const override { return stage::facts_of(shape()); }

 private:
  static stage::DecoderShape shape() {
    return {.family = stage::DecoderFamily::kLlama,
            .blocks = 6,
            .channels = 40,
            .heads = 4,
            .kv_heads = 1,
            .head_size = 16,
            .ffn = 88,
            .epsilon = 1e-6F,
            .deviation = 0.1F,  // norms of tiny weights are too curved for differences
            .full_names = true,
            .qkv_bias = true,
            .output_bias = true,
            .norms_heads = true,
            .window = 3,
            .theta = 1e5F};
  }
  const stage::ModelOptions options_;
};

// Decoders whose projection to the vocabulary is the table of the embedding.
inline constexpr const char* kTiedLlama = "llama-with-a-tied-table";
inline constexpr const char* kTiedGpt = "gpt-with-a-tied-table";
class TiedModel final : public stage::LayerSource {
 public:
  explicit TiedModel(stage::ModelOptions options, bool tied = true)
      : options_(std::move(options)), tied_(tied) {}
  std::string name() const override { return options_.name; }
  std::string engine() const override { return ""; }
  stage::Layers layers() const override {
    stage::DecoderShape shape{.family = stage::DecoderFamily::kLlama,
                              .blocks = 3,
                              .channels = 16,
                              .heads = 2,
                              .kv_heads = 1,
                              .head_size = 8,
                              .ffn = 24,
                              .deviation = 0.1F,
                              .full_names = true,
                              .tied = tied_};
    if (options_.name == kTiedGpt) {
      shape.family = stage::DecoderFamily::kGpt;
      shape.kv_heads = shape.heads;
      shape.ffn = 4 * shape.channels;
      shape.positions = options_.sequence;
    }
    return stage::build_decoder(shape, options_);
  }

 private:
  const stage::ModelOptions options_;
  const bool tied_;
};

// The model of that name if it is none of the registry's.
inline std::shared_ptr<const stage::LayerSource> source_of(const stage::ModelOptions& options) {
  if (options.name == kEverything) return std::make_shared<EverythingModel>(options);
  if (options.name == kFrozenMlp) return std::make_shared<FrozenMlp>(options);
  if (options.name == kTiedLlama || options.name == kTiedGpt) {
    return std::make_shared<TiedModel>(options);
  }
  return nullptr;
}

// What tests of whole models run with.
struct TestedModel {
  std::string name;
  stage::Precision precision = stage::Precision::kFp32;
};
inline std::vector<TestedModel> tested_models() {
  return {{"mlp"},
          {"gpt-tiny"},
          {"llama"},
          {kEverything},
          {"mlp", stage::Precision::kBf16},
          {"gpt-tiny", stage::Precision::kBf16},
          {"llama", stage::Precision::kBf16},
          {kEverything, stage::Precision::kBf16}};
}
// The same for kernels that an emulator runs slowly.
inline std::vector<TestedModel> few_models() {
  return {{"mlp"},
          {"gpt-tiny"},
          {kEverything},
          {"mlp", stage::Precision::kBf16},
          {"gpt-tiny", stage::Precision::kBf16}};
}
// Part of the name of a test.
inline std::string model_text(const std::string& model) {
  return model == "mlp"         ? "Mlp"
         : model == "llama"     ? "Llama"
         : model == kEverything ? "Everything"
         : model == kFrozenMlp  ? "FrozenMlp"
         : model == kTiedLlama  ? "TiedLlama"
         : model == kTiedGpt    ? "TiedGpt"
                                : "GptTiny";
}
inline std::string tested_name(const ::testing::TestParamInfo<TestedModel>& tested) {
  return model_text(tested.param.name) +
         (tested.param.precision == stage::Precision::kBf16 ? "InBf16" : "");
}

inline stage::ModelOptions small_options(const std::string& name,
                                         stage::Precision precision = stage::Precision::kFp32) {
  stage::ModelOptions options;
  options.name = name;
  options.precision = precision;
  options.sequence = 4;
  options.vocabulary = 13;
  options.learning_rate = 1e-2;
  if (name == "gpt") options.blocks = 6, options.width = 8, options.heads = 2;
  if (name == "llama") {  // with as many layers as the others
    options.blocks = 6, options.width = 96, options.heads = 4;
    options.kv_heads = 2, options.ffn = 112;
  }
  return options;
}

inline stage::Model model_of(const stage::ModelOptions& options) {
  auto described = stage::describe_model(options, source_of(options));
  EXPECT_TRUE(described.ok());
  return *std::move(described);
}

inline std::unique_ptr<stage::Stage> stage_of(const stage::Model& model, int first, int last,
                                              device::Device& device) {
  auto made = stage::make_stage(model, first, last, device);
  EXPECT_TRUE(made.ok());
  return *std::move(made);
}

inline int last_layer(const stage::Model& model) {
  return static_cast<int>(model.layers.size()) - 1;
}

// Random tokens of one micro-batch, the same for the same seed.
class Batch {
 public:
  Batch(const stage::ModelOptions& options, int samples, std::uint64_t seed) : samples_(samples) {
    Random random(seed);
    const auto count =
        static_cast<std::size_t>(samples) * static_cast<std::size_t>(options.sequence);
    for (std::size_t i = 0; i < 2 * count; ++i) {
      tokens_.push_back(
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(options.vocabulary))));
    }
  }
  stage::Tokens tokens() const {
    const std::span<const std::int32_t> all = tokens_;
    return {.inputs = all.first(all.size() / 2),
            .targets = all.last(all.size() / 2),
            .samples = samples_};
  }

 private:
  int samples_;
  std::vector<std::int32_t> tokens_;
};

inline device::Buffer forward(stage::Stage& stage, int micro_batch, const device::Buffer& input,
                              const stage::Tokens& tokens) {
  auto output = stage.forward(micro_batch, input, tokens);
  EXPECT_TRUE(output.ok());
  return *std::move(output);
}

inline device::Buffer backward(stage::Stage& stage, int micro_batch,
                               const device::Buffer& output_gradient) {
  auto gradient = stage.backward(micro_batch, output_gradient);
  EXPECT_TRUE(gradient.ok());
  return *std::move(gradient);
}

inline device::Buffer backward_input(stage::Stage& stage, int micro_batch,
                                     const device::Buffer& output_gradient) {
  auto gradient = stage.backward_input(micro_batch, output_gradient);
  EXPECT_TRUE(gradient.ok());
  return *std::move(gradient);
}

// What the engine does with tied tables on two stages.
inline void add_other_ends(stage::Stage& one, stage::Stage& other) {
  const auto here = one.tied_sums(), there = other.tied_sums();
  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    for (std::size_t n = 0; n < here[i].sums.size(); ++n) {
      here[i].sums[n] = there[i].sums[n] = here[i].sums[n] + there[i].sums[n];
    }
  }
}

// Name of a test whose parameter is one of the models.
inline std::string model_test_name(const ::testing::TestParamInfo<std::string>& tested) {
  return model_text(tested.param);
}

// The bits of all parameters, with their gradients and moments.
inline std::vector<std::uint32_t> parameter_bits(stage::Stage& stage) {
  std::vector<std::uint32_t> bits;
  for (const auto& parameter : stage.parameters()) {
    for (const auto part :
         {parameter.value, parameter.gradient, parameter.adam_m, parameter.adam_v}) {
      const std::size_t before = bits.size();
      bits.resize(before + part.size());
      EXPECT_TRUE(stage.device().read(bits.data() + before, part.data(), part.size_bytes()));
    }
  }
  return bits;
}

}  // namespace weir::test
