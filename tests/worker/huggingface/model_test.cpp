// SPDX-License-Identifier: Apache-2.0
// Logits, loss and gradients of small models are those that transformers has computed from the same
// folder: logits to 2e-4 and gradients to 1e-3 of their tensor's largest number, the loss to 1e-5.
#include "worker/huggingface/model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/huggingface/folders.h"
#include "worker/stage/ops/kernels.h"

namespace weir::huggingface {
namespace model_test {

using device::Buffer;
using test::Floats;
using ::testing::HasSubstr;

constexpr int kSamples = 2;

class OfTransformers : public ::testing::TestWithParam<std::string> {
 protected:
  const std::string folder_ = test::stored_folder(GetParam());
  const std::map<std::string, Floats> expected_ =
      test::tensors_of(folder_ + "/expected.safetensors");
  const stage::Model model_ = test::folder_model(folder_, test::folder_options());
  const std::unique_ptr<device::Device> device_ = device::make_host_device();
  const std::vector<std::int32_t> inputs_ = tokens("inputs"), targets_ = tokens("targets");

  std::vector<std::int32_t> tokens(const std::string& name) const {
    std::vector<std::int32_t> list;
    for (const float token : expected_.at(name).values) {
      list.push_back(static_cast<std::int32_t>(token));
    }
    return list;
  }
  int last() const { return static_cast<int>(model_.layers.size()) - 1; }
  std::unique_ptr<stage::Stage> stage(int first, int last) {
    auto made = stage::make_stage(model_, first, last, *device_);
    EXPECT_TRUE(made) << made.error().message;
    return *std::move(made);
  }
  const std::vector<float>& gradient_of(const std::string& name) const {
    return expected_.at("gradient/" + name).values;
  }
};

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float value : values) most = std::max(most, std::abs(double{value}));
  return most;
}

// tolerance: of the largest number.
void expect_near(std::span<const float> actual, const std::vector<float>& expected,
                 double tolerance, const std::string& name) {
  ASSERT_EQ(actual.size(), expected.size()) << name;
  const double limit = tolerance * largest(expected);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], limit) << name << ", number " << i;
  }
}

// The head's norm and product on what the stages before it give.
TEST_P(OfTransformers, LogitsAreTheirs) {
  const auto body = stage(0, last() - 1), head = stage(last(), last());
  body->begin_step(0, kSamples);
  const auto hidden =
      body->forward(0, Buffer(), {.inputs = inputs_, .targets = {}, .samples = kSamples});
  ASSERT_TRUE(hidden) << hidden.error().message;
  const std::vector<stage::Parameter> parameters = head->parameters();
  const int rows = static_cast<int>(inputs_.size());
  const int vocabulary = static_cast<int>(parameters.back().shape[0]);
  const int channels = static_cast<int>(parameters.back().shape[1]);
  std::vector<float> normed(inputs_.size() * static_cast<std::size_t>(channels));
  std::vector<float> statistics(2 * inputs_.size());
  std::vector<float> logits(inputs_.size() * static_cast<std::size_t>(vocabulary));
  const auto element = [](auto* values) { return reinterpret_cast<stage::ops::Element*>(values); };
  const auto value = [&](std::size_t i) { return element(parameters[i].value.data()); };
  const auto kernels = stage::ops::make_host_kernels(stage::Precision::kFp32);
  if (parameters.size() == 3) {
    kernels->run(stage::ops::LayerNormForward{{rows, channels},
                                              hidden->as<stage::ops::Element>(),
                                              value(0),
                                              value(1),
                                              element(normed.data()),
                                              statistics.data()});
  } else {
    kernels->run(stage::ops::RmsNormForward{stage::ops::rms_norm_of_rows(rows, channels, 1e-6F),
                                            hidden->as<stage::ops::Element>(), value(0),
                                            element(normed.data()), statistics.data()});
  }
  kernels->run(stage::ops::LinearForward{{rows, channels, vocabulary},
                                         element(normed.data()),
                                         value(parameters.size() - 1),
                                         nullptr,
                                         nullptr,
                                         element(logits.data())});

  expect_near(logits, expected_.at("logits").values, 2e-4, "logits");
}

TEST_P(OfTransformers, LossAndGradientsAreTheirs) {
  const auto whole = stage(0, last());
  whole->begin_step(0, kSamples);
  ASSERT_TRUE(
      whole->forward(0, Buffer(), {.inputs = inputs_, .targets = targets_, .samples = kSamples}));
  ASSERT_TRUE(whole->backward(0, Buffer()));
  whole->finish_gradients();

  EXPECT_NEAR(whole->loss(), expected_.at("loss").values[0], 1e-5);
  std::set<std::string> seen;
  std::vector<float> head;
  for (const stage::Parameter& parameter : whole->parameters()) {
    if (parameter.name == "lm_head.weight") {
      head.assign(parameter.gradient.begin(), parameter.gradient.end());
    }
  }
  for (const stage::Parameter& parameter : whole->parameters()) {
    std::vector<float> actual(parameter.gradient.begin(), parameter.gradient.end());
    if (!expected_.contains("gradient/" + parameter.name)) {
      EXPECT_EQ(parameter.name, "lm_head.weight") << "of a tied table";
      continue;
    }
    const bool is_table =
        parameter.name.ends_with("wte.weight") || parameter.name.ends_with("embed_tokens.weight");
    if (is_table && !expected_.contains("gradient/lm_head.weight")) {
      for (std::size_t i = 0; i < actual.size(); ++i) actual[i] += head[i];  // the two copies
    }
    const Floats& expected = expected_.at("gradient/" + parameter.name);
    if (parameter.shape.size() == 2 && GetParam() == "gpt2" && expected.shape != parameter.shape) {
      std::vector<float> turned(actual.size());
      transpose(parameter.shape[0], parameter.shape[1], actual.data(), turned.data());
      actual = turned;
    } else if (GetParam() == "gpt2" && parameter.name.ends_with("attn.c_proj.weight")) {
      std::vector<float> turned(actual.size());  // square
      transpose(parameter.shape[0], parameter.shape[1], actual.data(), turned.data());
      actual = turned;
    }
    expect_near(actual, expected.values, 1e-3, parameter.name);
    seen.insert(parameter.name);
  }
  for (const auto& [name, tensor] : expected_) {
    if (name.starts_with("gradient/")) {
      EXPECT_TRUE(seen.contains(name.substr(9))) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, OfTransformers,
                         ::testing::Values("llama", "llama-tied", "mistral", "qwen2", "qwen3",
                                           "gpt2"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::erase(name, '-');
                           return name;
                         });

// Trained with one table, the gradient of both layers is that of transformers.
TEST(FolderModels, ShareATableThatTheFolderTies) {
  const std::string folder = test::stored_folder("llama-tied");
  const auto device = device::make_host_device();
  const stage::Model model = test::folder_model(folder, test::folder_options(), false, false);
  ASSERT_EQ(model.ties.size(), 1U);
  EXPECT_EQ(model.ties[0].first, "model.embed_tokens.weight");
  const int last = static_cast<int>(model.layers.size()) - 1;
  const auto whole = *stage::make_stage(model, 0, last, *device);
  const auto expected = test::tensors_of(folder + "/expected.safetensors");
  const auto whole_numbers = [&](const char* name) {
    const auto& values = expected.at(name).values;
    return std::vector<std::int32_t>(values.begin(), values.end());
  };
  const auto inputs = whole_numbers("inputs"), targets = whole_numbers("targets");
  const int samples = static_cast<int>(expected.at("inputs").shape[0]);
  whole->begin_step(0, samples);
  ASSERT_TRUE(whole->forward(0, {}, {.inputs = inputs, .targets = targets, .samples = samples}));
  ASSERT_TRUE(whole->backward(0, {}));
  whole->finish_gradients();
  EXPECT_NEAR(whole->loss(), expected.at("loss").values[0], 1e-5);
  const auto parameters = whole->parameters();
  const auto& wanted = expected.at("gradient/model.embed_tokens.weight").values;
  for (const auto* table : {&parameters.front(), &parameters.back()}) {
    ASSERT_EQ(table->gradient.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(table->gradient[i], wanted[i], 1e-4) << i;
    }
  }
}

TEST(FolderModels, GiveTheirValuesToAnotherModelOfTheSameShapes) {
  const auto device = device::make_host_device();
  for (const char* name : {"llama-tied", "gpt2", "qwen2"}) {
    const std::string folder = test::stored_folder(name);
    EXPECT_TRUE(is_folder(folder));
    for (const bool untie : {false, true}) {
      const stage::Model random = test::folder_model(folder, test::folder_options(), true, untie);
      const stage::Model own = test::folder_model(folder, test::folder_options(), false, untie);
      const int last = static_cast<int>(own.layers.size()) - 1;
      const auto filled = *stage::make_stage(random, 1, last, *device);
      const auto wanted = *stage::make_stage(own, 1, last, *device);
      const Status loaded = load_values(folder, random, *filled);
      ASSERT_TRUE(loaded) << loaded.error().message;
      const auto all = filled->parameters(), expected = wanted->parameters();
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal(all[i].value, expected[i].value)) << all[i].name;
      }
    }
  }
  const stage::Model other =
      test::folder_model(test::stored_folder("qwen3"), test::folder_options());
  const auto stage = *stage::make_stage(other, 0, 0, *device);
  EXPECT_THAT(load_values(test::stored_folder("qwen2"), other, *stage).error().message,
              HasSubstr("tensor "));
  EXPECT_FALSE(is_folder("/nowhere"));
}

TEST(FolderModels, HaveTheNameOfTheirArchitecture) {
  const stage::Model model =
      test::folder_model(test::stored_folder("qwen3"), test::folder_options());
  EXPECT_EQ(model.options.name, "Qwen3ForCausalLM");
  EXPECT_EQ(model.layers.size(), 3U);
}

TEST(FolderModels, ThatDifferInFactsAloneAreOthers) {
  const std::string folder = test::stored_folder("llama");
  stage::ModelOptions options = test::folder_options();
  const stage::Model plain = test::folder_model(folder, options);
  options.model_options = R"({"rms_norm_eps": 1e-5})";
  EXPECT_NE(test::folder_model(folder, options).shapes, plain.shapes);
  options.model_options = R"({"rope_parameters": {"rope_theta": 10000}})";
  EXPECT_NE(test::folder_model(folder, options).shapes, plain.shapes);
}

TEST(FolderModels, BeginAtRandomWithoutWeightsOrIfAskedTo) {
  const test::ChangedFolder folder("llama");
  const auto device = device::make_host_device();
  const auto values_of = [&](bool random) {
    const stage::Model model = test::folder_model(folder.path(), test::folder_options(), random);
    const auto stage = stage::make_stage(model, 0, 0, *device);
    EXPECT_TRUE(stage) << stage.error().message;
    const auto values = (*stage)->parameters()[0].value;
    return std::vector<float>(values.begin(), values.end());
  };
  const auto of_folder = values_of(false), random = values_of(true);
  EXPECT_NE(random, of_folder);
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json"}) {
    std::filesystem::remove(folder.file(name));
  }
  EXPECT_EQ(values_of(false), random);
}

TEST(FolderModels, RefuseWhatTheyAreNot) {
  stage::ModelOptions options = test::folder_options();
  const std::string tied = test::stored_folder("llama-tied");
  EXPECT_EQ(test::refusal_of(tied, options, false), "") << "its table is shared";
  options.sequence = 33;
  EXPECT_EQ(test::refusal_of(tied, options),
            "--seq: 33 is above max_position_embeddings 32 of " + tied);
  options.sequence = 17;
  EXPECT_THAT(test::refusal_of(test::stored_folder("gpt2"), options),
              HasSubstr("--seq: 17 is above n_positions 16"));
  EXPECT_THAT(test::refusal_of("/nowhere", options), HasSubstr("/nowhere/config.json"));
}

}  // namespace model_test
}  // namespace weir::huggingface
