// SPDX-License-Identifier: Apache-2.0
// Layers of a plugin as a stage: the same bits for every cut, every ticket dropped once, and each
// failure of somebody else's code as one line.
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"
#include "worker/stage/foreign/foreign_model.h"
#include "worker/stage/foreign/plugin.h"

namespace weir::stage {
namespace foreign_layer_test {

using device::Buffer;
using testing::HasSubstr;

// What the layers of the plugin were asked, and how their next forward or backward fails.
struct Watched {
  const weir_layers* layers = nullptr;
  int bound = 0, trims = 0, initials = 0;
  std::set<std::pair<void*, std::uint64_t>> tickets;
  std::map<void*, std::vector<std::uint64_t>> seeds;  // of the forwards, by layer
  std::map<void*, int> layer_of;
  std::map<int, std::vector<bool>> frozen;  // whether each parameter has no gradient, by layer
  std::set<int> readers;                    // layers that were given inputs
  std::string fault;                        // "" = none; then only once
};
Watched watched;  // the table has no other place

std::int32_t faulty(std::int32_t status) {
  const std::string fault = std::exchange(watched.fault, "");
  if (fault == "throw") throw std::runtime_error("no such luck");
  if (fault == "garbage") return -462143008;
  if (fault == "failed") return WEIR_FAILED;
  if (fault == "memory") return WEIR_NO_MEMORY;
  if (fault == "no memory at all") {
    watched.fault = fault;
    return WEIR_NO_MEMORY;
  }
  return status;
}

// The plugin's table, watched.
const weir_layers* table() {
  static weir_layers watching = [] {
    const auto opened = open_plugin(WEIR_PLUGIN_TWO_LAYERS);
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
    watched.layers = *opened;
    weir_layers copy = **opened;
    copy.bind = [](void* self, std::int32_t layer, const weir_parameter* parameters,
                   std::uint32_t count, void** bound) {
      ++watched.bound;
      const std::int32_t status = watched.layers->bind(self, layer, parameters, count, bound);
      watched.layer_of[*bound] = layer;
      watched.frozen[layer].clear();
      for (std::uint32_t i = 0; i < count; ++i) {
        watched.frozen[layer].push_back(parameters[i].gradient == nullptr);
      }
      return status;
    };
    copy.unbind = [](void* self, void* bound) {
      --watched.bound;
      for (const auto& [layer, ticket] : watched.tickets) {
        EXPECT_NE(layer, bound) << "a layer ends after its tickets";
      }
      watched.layers->unbind(self, bound);
    };
    copy.forward = [](void* self, void* bound, const weir_forward* pass) {
      if (!watched.fault.empty()) return faulty(WEIR_OK);
      watched.seeds[bound].push_back(pass->seed);
      if (pass->inputs != nullptr) watched.readers.insert(watched.layer_of[bound]);
      if (pass->ticket != 0) {
        EXPECT_TRUE(watched.tickets.emplace(bound, pass->ticket).second);
      }
      return watched.layers->forward(self, bound, pass);
    };
    copy.backward = [](void* self, void* bound, const weir_backward* pass) {
      if (!watched.fault.empty()) return faulty(WEIR_OK);
      EXPECT_TRUE(watched.tickets.contains({bound, pass->ticket}));
      return watched.layers->backward(self, bound, pass);
    };
    copy.drop = [](void* self, void* bound, std::uint64_t ticket) {
      EXPECT_EQ(watched.tickets.erase({bound, ticket}), 1U) << "each ticket is dropped once";
      watched.layers->drop(self, bound, ticket);
    };
    copy.trim = [](void*) { ++watched.trims; };
    copy.initial = [](void* self, void* bound, std::uint32_t parameter, float* values,
                      std::uint64_t count) {
      ++watched.initials;
      return watched.layers->initial(self, bound, parameter, values, count);
    };
    return copy;
  }();
  return &watching;
}

ModelOptions options() {
  ModelOptions own = test::small_options("");
  own.model_options = R"({"blocks":2,"width":6})";
  return own;
}

class ForeignLayers : public ::testing::Test {
 protected:
  ForeignLayers() {
    watched.fault.clear();
    watched.seeds.clear();
    watched.readers.clear();
    auto source = describe_foreign(*table(), options(), *device_);
    EXPECT_TRUE(source) << (source ? "" : source.error().message);
    auto described = describe_model(options(), *std::move(source));
    EXPECT_TRUE(described) << (described ? "" : described.error().message);
    model_ = *std::move(described);
  }
  ~ForeignLayers() override {
    EXPECT_TRUE(watched.tickets.empty());
    EXPECT_EQ(watched.bound, 0);
  }

  struct Trained {
    std::vector<double> losses;
    std::vector<std::uint32_t> parameters;
  };
  // Stages that end with the layers of `lasts`; groups of `in_flight` micro-batches.
  Trained train(const std::vector<int>& lasts, int in_flight) {
    constexpr int kMicroBatches = 4, kSamples = 2;
    std::vector<std::unique_ptr<Stage>> stages;
    for (std::size_t s = 0; s < lasts.size(); ++s) {
      stages.push_back(test::stage_of(model_, s == 0 ? 0 : lasts[s - 1] + 1, lasts[s], *device_));
    }
    Trained trained;
    for (int step = 0; step < 3; ++step) {
      for (auto& stage : stages) stage->begin_step(step, kMicroBatches * kSamples);
      for (int m = 0; m < kMicroBatches; m += in_flight) {
        for (int i = m; i < m + in_flight; ++i) {
          const test::Batch batch(model_.options, kSamples, static_cast<std::uint64_t>(i));
          Buffer current;
          for (auto& stage : stages) {
            current = test::forward(*stage, i, current, batch.tokens());
          }
        }
        for (int i = m; i < m + in_flight; ++i) {
          Buffer gradient;
          for (std::size_t s = stages.size(); s-- > 0;) {
            gradient = test::backward(*stages[s], i, gradient);
          }
        }
      }
      for (auto& stage : stages) stage->optimizer_step();
      trained.losses.push_back(stages.back()->loss());
    }
    for (auto& stage : stages) {
      const auto bits = test::parameter_bits(*stage);
      trained.parameters.insert(trained.parameters.end(), bits.begin(), bits.end());
    }
    return trained;
  }

  Result<Buffer> one_forward(Stage& stage) {
    stage.begin_step(0, 2);
    return stage.forward(0, Buffer(), batch_.tokens());
  }

  const std::unique_ptr<device::Device> device_ = device::make_host_device();
  Model model_;
  const test::Batch batch_{options(), 2, 7};
};

TEST_F(ForeignLayers, GiveTheSameBitsForEveryCutAndOrder) {
  const Trained whole = train({3}, 1);
  EXPECT_LT(whole.losses[2], whole.losses[0]);
  for (const auto& lasts : std::vector<std::vector<int>>{{0, 3}, {1, 3}, {2, 3}, {0, 1, 2, 3}}) {
    for (const int in_flight : {2, 4}) {
      const Trained parts = train(lasts, in_flight);
      EXPECT_EQ(parts.losses, whole.losses);
      EXPECT_TRUE(parts.parameters == whole.parameters);
    }
  }
}

TEST_F(ForeignLayers, GiveTheSameBitsWhenTheyAreRecomputed) {
  const Trained kept = train({3}, 2);
  model_.options.recompute = "all";
  const Trained again = train({1, 3}, 2);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_TRUE(again.parameters == kept.parameters);
}

TEST_F(ForeignLayers, KeepNothingUntilTheyAreRecomputedWithTheSameRandomNumbers) {
  model_.options.recompute = "all";
  const auto stage = test::stage_of(model_, 1, 1, *device_);
  Buffer input = device_->allocate(static_cast<std::size_t>(stage->input_bytes(2)));
  std::fill_n(input.as<float>(), input.size() / sizeof(float), 0.5F);
  stage->begin_step(5, 2);
  Tokens tokens = batch_.tokens();
  tokens.first_sample = 6;
  const Buffer output = test::forward(*stage, 0, input, tokens);
  EXPECT_TRUE(watched.tickets.empty());
  test::backward(*stage, 0, output);

  ASSERT_EQ(watched.seeds.size(), 1U);
  const std::vector<std::uint64_t>& seeds = watched.seeds.begin()->second;
  ASSERT_EQ(seeds.size(), 2U);
  EXPECT_EQ(seeds[0], seeds[1]);
}

// The plugin's description, but that its second layer reads the inputs, too.
TEST_F(ForeignLayers, GetTheInputsThatTheyAskForAnywhere) {
  static weir_layers reading = *table();
  reading.describe = [](void* self, const weir_settings* settings, const char** json) {
    const std::int32_t status = watched.layers->describe(self, settings, json);
    static std::string changed;
    changed = *json;
    const std::string at = R"("id": "block0", )";
    changed.insert(changed.find(at) + at.size(), R"("needsInputs": true, )");
    *json = changed.c_str();
    return status;
  };
  model_ = *describe_model(options(), *describe_foreign(reading, options(), *device_));
  model_.options.recompute = "block0";
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(test::stage_of(model_, i, i, *device_)->needs_inputs(), i <= 1) << i;
  }
  EXPECT_TRUE(test::stage_of(model_, 1, 3, *device_)->needs_inputs());
  train({3}, 2);
  EXPECT_EQ(watched.readers, (std::set<int>{0, 1}));
}

TEST_F(ForeignLayers, GetNoGradientForParametersThatTheyFreeze) {
  static weir_layers freezing = *table();
  freezing.describe = [](void* self, const weir_settings* settings, const char** json) {
    const std::int32_t status = watched.layers->describe(self, settings, json);
    static std::string changed;
    changed = *json;
    const std::string at = R"("name": "block0.weight", )";
    changed.insert(changed.find(at) + at.size(), R"("trainable": false, )");
    *json = changed.c_str();
    return status;
  };
  const Model frozen = *describe_model(options(), *describe_foreign(freezing, options(), *device_));
  EXPECT_NE(frozen.digest, model_.digest);
  EXPECT_NE(frozen.shapes, model_.shapes);
  EXPECT_EQ(frozen.parameters, model_.parameters);
  const std::int64_t before = device_->bytes_in_use();
  const auto stage = test::stage_of(frozen, 1, 2, *device_);
  EXPECT_EQ(watched.frozen[1], (std::vector<bool>{true, false}));
  EXPECT_EQ(watched.frozen[2], (std::vector<bool>{false, false}));
  // Each parameter begins at a multiple of 32 values: 36 and 6 of them take 64 and 32.
  EXPECT_EQ(device_->bytes_in_use() - before, (4 * 64 + 24 * 32) + 24 * (64 + 32));
  EXPECT_NE(stage->parameters()[0].value[0], 0) << "initial values are asked for";
}

TEST_F(ForeignLayers, AreAskedForInitialValuesOnlyIfNothingElseFillsTheStage) {
  watched.initials = 0;
  const auto filled = *make_stage(model_, 0, 3, *device_, GraphUse::kOff, Initial::kFromElsewhere);
  EXPECT_EQ(watched.initials, 0);
  EXPECT_EQ(filled->parameters()[0].value[0], 0);
  test::stage_of(model_, 0, 3, *device_);
  EXPECT_EQ(watched.initials, 6);
}

TEST_F(ForeignLayers, NameTheirModelAndItsLayers) {
  EXPECT_EQ(model_.options.name, "two-layers");
  ASSERT_EQ(model_.layers.size(), 4U);
  EXPECT_EQ(model_.layers[2].id, "block1");
  EXPECT_EQ(model_.layers[2].kind, "block");
  EXPECT_EQ(model_.layers[0].output_bytes_per_sample, 4 * 4 * 6);
  // The input, and what the layer says that it keeps.
  EXPECT_EQ(model_.layers[2].activation_bytes_per_sample, 2 * 4 * 4 * 6);
  // Each parameter begins at a multiple of 32 values: 36 and 6 of them take 64 and 32.
  EXPECT_EQ(model_.layers[2].parameter_bytes, 4 * (64 + 32));
  ModelOptions other = options();
  other.model_options = R"({"blocks":2,"width":7})";
  const auto described = describe_model(other, *describe_foreign(*table(), other, *device_));
  EXPECT_NE(described->digest, model_.digest);
  EXPECT_NE(described->shapes, model_.shapes);
}

TEST_F(ForeignLayers, CountWhatTheyKeep) {
  const auto stage = test::stage_of(model_, 0, 3, *device_);
  ASSERT_TRUE(one_forward(*stage));
  std::int64_t expected = 0;
  for (const LayerInfo& layer : model_.layers) expected += 2 * layer.activation_bytes_per_sample;
  EXPECT_EQ(stage->activation_bytes(), expected);
}

TEST_F(ForeignLayers, KeepNothingInAnEvaluationAndAfterAnAbandonedStep) {
  const auto stage = test::stage_of(model_, 0, 3, *device_);
  stage->begin_evaluation();
  const auto evaluated = stage->evaluate(Buffer(), batch_.tokens());
  ASSERT_TRUE(evaluated);
  EXPECT_GT(evaluated->loss_sum, 0);
  EXPECT_TRUE(watched.tickets.empty());

  ASSERT_TRUE(one_forward(*stage));
  EXPECT_EQ(watched.tickets.size(), 4U);
  stage->begin_step(1, 2);
  EXPECT_TRUE(watched.tickets.empty());
  ASSERT_TRUE(stage->forward(0, Buffer(), batch_.tokens()));  // the stage ends with it
}

TEST_F(ForeignLayers, TellInOneLineWhyTheyFailed) {
  const auto stage = test::stage_of(model_, 0, 3, *device_);
  const auto failure = [&](const std::string& fault) {
    watched.fault = fault;
    const auto output = one_forward(*stage);
    EXPECT_FALSE(output);
    EXPECT_EQ(output.error().code, Code::kModel);
    return output.error().message;
  };
  EXPECT_EQ(failure("throw"), "layer embed threw an exception: no such luck");
  EXPECT_THAT(failure("garbage"), HasSubstr("layer embed returned -462143008, which is no status"));
  EXPECT_THAT(failure("failed"), HasSubstr("layer embed failed"));

  ASSERT_TRUE(one_forward(*stage));
  watched.fault = "throw";
  const auto gradient = stage->backward(0, Buffer());
  ASSERT_FALSE(gradient);
  EXPECT_EQ(gradient.error().message, "layer head threw an exception: no such luck");
}

TEST_F(ForeignLayers, GiveBackMemoryBeforeTheyFailForLackOfIt) {
  const auto stage = test::stage_of(model_, 0, 3, *device_);
  watched.trims = 0;
  watched.fault = "memory";
  EXPECT_TRUE(one_forward(*stage));
  EXPECT_EQ(watched.trims, 1);

  watched.fault = "no memory at all";
  const auto output = one_forward(*stage);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, Code::kInternal);
  EXPECT_THAT(output.error().message, HasSubstr("layer embed has no memory left"));
  watched.fault.clear();
}

std::string refusal_of(const std::string& path) {
  const auto opened = open_plugin(path);
  if (opened) return "opened";
  EXPECT_EQ(opened.error().code, Code::kInvalid);
  return opened.error().message;
}

TEST(Plugin, ThatCannotBeUsedIsNamedWithTheReason) {
  EXPECT_EQ(refusal_of(WEIR_PLUGIN_TWO_LAYERS), "opened");
  EXPECT_THAT(refusal_of("/nowhere/lib.so"), HasSubstr("/nowhere/lib.so: cannot open"));
  EXPECT_THAT(refusal_of(WEIR_PLUGIN_NO_SYMBOL), HasSubstr("exports no function weir_open"));
  EXPECT_THAT(refusal_of(WEIR_PLUGIN_OLD_VERSION),
              HasSubstr("it is of version 2 of weir_layers.h"));

  weir_layers lacking = *table();
  lacking.backward = nullptr;
  EXPECT_EQ(check_table(&lacking).error().message, "function backward is NULL");
  lacking.size = 16;
  EXPECT_THAT(check_table(&lacking).error().message, HasSubstr("16 bytes"));
  EXPECT_THAT(check_table(nullptr).error().message, HasSubstr("cannot serve version 1"));
}

TEST(Plugin, SaysWhyItDoesNotDescribeAModel) {
  ModelOptions own = options();
  own.model_options = R"({"width":5000})";
  const auto source = describe_foreign(*table(), own, *device::make_host_device());
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().message, "describe failed: width is not within 1..4096");
}

}  // namespace foreign_layer_test
}  // namespace weir::stage
