// SPDX-License-Identifier: Apache-2.0
// The planner believes LayerInfo: what it says must be what a stage takes, to the byte.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"

namespace weir::stage {
namespace stage_memory_test {

using device::Buffer;

struct MemoryCase {
  std::string model;
  int sequence, samples;
  Precision precision = Precision::kFp32;
  std::string recompute = "none";
};

class LayerMemory : public ::testing::TestWithParam<MemoryCase> {
 protected:
  static Model model() {
    ModelOptions options = test::small_options(GetParam().model, GetParam().precision);
    options.sequence = GetParam().sequence;
    options.recompute = GetParam().recompute;
    return test::model_of(options);
  }
};

TEST(StateBytes, AreThoseOfEachParameter) {
  EXPECT_EQ(state_bytes(Precision::kFp32, 4 * 100), (8 + 4 + 4 + 8) * 100);
  EXPECT_EQ(state_bytes(Precision::kBf16, 4 * 100), (2 + 8 + 4 + 4 + 8) * 100);
  EXPECT_EQ(state_factor(Precision::kBf16) * 400, 2600);
  EXPECT_EQ(state_bytes(Precision::kFp32, 0, 4 * 100), 4 * 100) << "frozen: the value";
  EXPECT_EQ(state_bytes(Precision::kBf16, 0, 4 * 100), 6 * 100) << "and its rounded copy";
}

TEST(Bf16Memory, HalvesWhatTravelsBetweenStages) {
  const Model wide = test::model_of(test::small_options("gpt-tiny"));
  const Model narrow = test::model_of(test::small_options("gpt-tiny", Precision::kBf16));
  for (std::size_t i = 0; i < wide.layers.size(); ++i) {
    EXPECT_EQ(2 * narrow.layers[i].output_bytes_per_sample, wide.layers[i].output_bytes_per_sample);
    EXPECT_EQ(narrow.layers[i].parameter_bytes, wide.layers[i].parameter_bytes);
  }
}

// One layer alone: parameters, then input, activations (which holds the input), output, transient.
TEST_P(LayerMemory, IsWhatEachLayerTakesAlone) {
  const Model model = LayerMemory::model();
  const int samples = GetParam().samples;
  const test::Batch batch(model.options, samples, 1);
  for (int i = 0; i <= test::last_layer(model); ++i) {
    for (const bool split : {false, true}) {
      const LayerInfo& info = model.layers[static_cast<std::size_t>(i)];
      const std::string name = info.id + (split ? ", split" : "");
      const auto device = device::make_host_device();
      const auto stage = test::stage_of(model, i, i, *device);
      const std::int64_t fixed =
          state_bytes(GetParam().precision, info.parameter_bytes, info.frozen_bytes);
      EXPECT_EQ(device->bytes_in_use(), fixed) << name;

      Buffer input;
      if (stage->input_bytes(samples) > 0) {
        input = device->allocate(static_cast<std::size_t>(stage->input_bytes(samples)));
        std::fill_n(input.as<float>(), input.size() / sizeof(float), 0.5F);
      }
      stage->begin_step(0, samples);
      Buffer output = test::forward(*stage, 0, input, batch.tokens());
      input = Buffer();
      const std::int64_t output_bytes = samples * info.output_bytes_per_sample;
      const std::int64_t activation_bytes = samples * info.activation_bytes_per_sample;
      const std::int64_t held_bytes = samples * info.held_bytes_per_sample;
      EXPECT_EQ(static_cast<std::int64_t>(output.size()), output_bytes) << name;
      EXPECT_EQ(stage->output_bytes(samples), output_bytes) << name;
      EXPECT_EQ(stage->activation_bytes(), activation_bytes) << name;
      EXPECT_EQ(device->bytes_in_use(), fixed + activation_bytes + output_bytes) << name;

      Buffer gradient =
          split ? test::backward_input(*stage, 0, output) : test::backward(*stage, 0, output);
      output = Buffer();
      EXPECT_EQ(stage->activation_bytes(), split ? held_bytes : 0) << name;
      EXPECT_EQ(device->bytes_in_use(),
                fixed + stage->input_bytes(samples) + (split ? held_bytes : 0))
          << name;
      const std::int64_t transient =
          split ? info.split_transient_bytes_per_sample : info.transient_bytes_per_sample;
      const std::int64_t peak = fixed + activation_bytes + output_bytes +
                                stage->input_bytes(samples) + samples * transient;
      EXPECT_EQ(device->bytes_peak(), peak) << name;
      if (!split) continue;

      gradient = Buffer();
      ASSERT_TRUE(stage->backward_weights(0));
      EXPECT_EQ(stage->activation_bytes(), 0) << name;
      EXPECT_EQ(device->bytes_in_use(), fixed) << name;
      EXPECT_EQ(device->bytes_peak(), peak) << name;
    }
  }
}

// On top of what is held, the weights take no more than the transient of both parts: many
// micro-batches are held, so their bytes are far above those of an input gradient.
TEST_P(LayerMemory, OfTheWeightsIsWithinTheTransient) {
  constexpr int kHeld = 8;
  const Model model = LayerMemory::model();
  const int samples = GetParam().samples;
  const test::Batch batch(model.options, samples, 1);
  for (int i = 0; i <= test::last_layer(model); ++i) {
    const LayerInfo& info = model.layers[static_cast<std::size_t>(i)];
    const auto device = device::make_host_device();
    const auto stage = test::stage_of(model, i, i, *device);
    const auto between = [&](std::int64_t bytes) {
      return bytes > 0 ? device->allocate(static_cast<std::size_t>(bytes)) : Buffer();
    };
    stage->begin_step(0, kHeld * samples);
    for (int m = 0; m < kHeld; ++m) {
      Buffer input = between(stage->input_bytes(samples));
      if (input) std::fill_n(input.as<float>(), input.size() / sizeof(float), 0.5F);
      const Buffer output = test::forward(*stage, m, input, batch.tokens());
      test::backward_input(*stage, m, output);
    }
    const std::int64_t held = kHeld * samples * info.held_bytes_per_sample;
    EXPECT_EQ(stage->activation_bytes(), held) << info.id;
    const std::int64_t before = device->bytes_in_use(), peak = device->bytes_peak();
    ASSERT_TRUE(stage->backward_weights(0));
    EXPECT_LE(device->bytes_peak(),
              std::max(peak, before + samples * info.split_transient_bytes_per_sample))
        << info.id;
    EXPECT_EQ(stage->activation_bytes(), held - samples * info.held_bytes_per_sample) << info.id;
  }
}

// Several micro-batches in flight: activations add up, and the peak is not above the planner's
// formula.
TEST_P(LayerMemory, OfAStageIsTheSumOverLayersAndMicroBatches) {
  const Model model = LayerMemory::model();
  const int samples = GetParam().samples;
  const test::Batch batch(model.options, samples, 1);
  const auto device = device::make_host_device();
  const auto stage = test::stage_of(model, 0, test::last_layer(model), *device);
  std::int64_t activations = 0, parameters = 0, widest = 0, transient = 0;
  for (const auto& info : model.layers) {
    activations += samples * info.activation_bytes_per_sample;
    parameters += state_bytes(GetParam().precision, info.parameter_bytes, info.frozen_bytes);
    widest = std::max(widest, samples * info.output_bytes_per_sample);
    transient = std::max(transient, samples * info.transient_bytes_per_sample);
  }

  stage->begin_step(0, 3 * samples);
  for (int m = 0; m < 3; ++m) {
    test::forward(*stage, m, Buffer(), batch.tokens());
    EXPECT_EQ(stage->activation_bytes(), (m + 1) * activations);
  }
  for (int m = 0; m < 3; ++m) test::backward(*stage, m, Buffer());

  EXPECT_EQ(device->bytes_in_use(), parameters);
  EXPECT_GE(device->bytes_peak(), parameters + 3 * activations);
  EXPECT_LE(device->bytes_peak(), parameters + 3 * activations + transient + 2 * widest);
}

// Split: a micro-batch has its activations, then what is held of each layer, the larger one at
// most.
TEST_P(LayerMemory, OfASplitBackwardIsWhatIsKeptAndHeld) {
  const Model model = LayerMemory::model();
  const int samples = GetParam().samples;
  const test::Batch batch(model.options, samples, 1);
  const auto device = device::make_host_device();
  const auto stage = test::stage_of(model, 0, test::last_layer(model), *device);
  std::int64_t kept = 0, held = 0, most = 0, parameters = 0, widest = 0, transient = 0;
  for (const auto& info : model.layers) {
    kept += samples * info.activation_bytes_per_sample;
    held += samples * info.held_bytes_per_sample;
    most += samples * std::max(info.activation_bytes_per_sample, info.held_bytes_per_sample);
    parameters += state_bytes(GetParam().precision, info.parameter_bytes, info.frozen_bytes);
    widest = std::max(widest, samples * info.output_bytes_per_sample);
    transient = std::max(transient, samples * info.split_transient_bytes_per_sample);
  }

  stage->begin_step(0, 3 * samples);
  for (int m = 0; m < 3; ++m) test::forward(*stage, m, Buffer(), batch.tokens());
  for (int m = 0; m < 3; ++m) {
    test::backward_input(*stage, m, Buffer());
    EXPECT_EQ(stage->activation_bytes(), (m + 1) * held + (2 - m) * kept);
  }
  for (int m = 0; m < 3; ++m) {
    ASSERT_TRUE(stage->backward_weights(m));
    EXPECT_EQ(stage->activation_bytes(), (2 - m) * held);
  }

  EXPECT_EQ(device->bytes_in_use(), parameters);
  EXPECT_LE(device->bytes_peak(), parameters + 3 * most + transient + 2 * widest);
}

INSTANTIATE_TEST_SUITE_P(
    Models, LayerMemory,
    ::testing::Values(MemoryCase{"mlp", 5, 2}, MemoryCase{"gpt-tiny", 5, 2},
                      MemoryCase{"gpt-tiny", 1, 3}, MemoryCase{"llama", 5, 2},
                      MemoryCase{"llama", 1, 3}, MemoryCase{test::kEverything, 5, 2},
                      MemoryCase{test::kEverything, 5, 2, Precision::kBf16},
                      MemoryCase{"llama", 5, 2, Precision::kBf16},
                      MemoryCase{"mlp", 5, 2, Precision::kBf16}, MemoryCase{test::kFrozenMlp, 5, 2},
                      MemoryCase{test::kFrozenMlp, 5, 2, Precision::kBf16},
                      MemoryCase{"gpt-tiny", 5, 2, Precision::kBf16},
                      MemoryCase{"mlp", 5, 2, Precision::kFp32, "all"},
                      MemoryCase{"gpt-tiny", 5, 2, Precision::kFp32, "all"},
                      MemoryCase{"gpt-tiny", 5, 2, Precision::kBf16, "all"}),
    [](const auto& tested) {
      return test::tested_name({{tested.param.model, tested.param.precision}, 0}) +
             std::to_string(tested.param.sequence) +
             (tested.param.recompute == "all" ? "Recomputed" : "");
    });

}  // namespace stage_memory_test
}  // namespace weir::stage
