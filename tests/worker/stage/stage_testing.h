// SPDX-License-Identifier: Apache-2.0
// Short ways to make small models, to feed them and to compare them bit by bit.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "worker/base/random.h"
#include "worker/stage/stage.h"

namespace weir::test {

// What tests of whole models run with.
struct TestedModel {
  std::string name;
  stage::Precision precision = stage::Precision::kFp32;
};
inline std::vector<TestedModel> tested_models() {
  return {{"mlp"},
          {"gpt-tiny"},
          {"mlp", stage::Precision::kBf16},
          {"gpt-tiny", stage::Precision::kBf16}};
}
inline std::string tested_name(const ::testing::TestParamInfo<TestedModel>& tested) {
  return std::string(tested.param.name == "mlp" ? "Mlp" : "GptTiny") +
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
  return options;
}

inline stage::Model model_of(const stage::ModelOptions& options) {
  auto described = stage::describe_model(options);
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

// Name of a test whose parameter is one of the two models.
inline std::string model_test_name(const ::testing::TestParamInfo<std::string>& tested) {
  return tested.param == "mlp" ? "Mlp" : "GptTiny";
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
