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
};

class LayerMemory : public ::testing::TestWithParam<MemoryCase> {
 protected:
  static Model model() {
    ModelOptions options = test::small_options(GetParam().model, GetParam().precision);
    options.sequence = GetParam().sequence;
    return test::model_of(options);
  }
};

TEST(StateBytes, AreThoseOfEachParameter) {
  EXPECT_EQ(state_bytes(Precision::kFp32, 4 * 100), (8 + 4 + 4 + 8) * 100);
  EXPECT_EQ(state_bytes(Precision::kBf16, 4 * 100), (2 + 8 + 4 + 4 + 8) * 100);
  EXPECT_EQ(state_factor(Precision::kBf16) * 400, 2600);
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
    const LayerInfo& info = model.layers[static_cast<std::size_t>(i)];
    const auto device = device::make_host_device();
    const auto stage = test::stage_of(model, i, i, *device);
    const std::int64_t fixed = state_bytes(GetParam().precision, info.parameter_bytes);
    EXPECT_EQ(device->bytes_in_use(), fixed) << info.id;

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
    EXPECT_EQ(static_cast<std::int64_t>(output.size()), output_bytes) << info.id;
    EXPECT_EQ(stage->output_bytes(samples), output_bytes) << info.id;
    EXPECT_EQ(stage->activation_bytes(), activation_bytes) << info.id;
    EXPECT_EQ(device->bytes_in_use(), fixed + activation_bytes + output_bytes) << info.id;

    const Buffer gradient = test::backward(*stage, 0, output);
    output = Buffer();
    EXPECT_EQ(stage->activation_bytes(), 0) << info.id;
    EXPECT_EQ(device->bytes_in_use(), fixed + stage->input_bytes(samples)) << info.id;
    EXPECT_EQ(device->bytes_peak(), fixed + activation_bytes + output_bytes +
                                        stage->input_bytes(samples) +
                                        samples * info.transient_bytes_per_sample)
        << info.id;
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
    parameters += state_bytes(GetParam().precision, info.parameter_bytes);
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

INSTANTIATE_TEST_SUITE_P(Models, LayerMemory,
                         ::testing::Values(MemoryCase{"mlp", 5, 2}, MemoryCase{"gpt-tiny", 5, 2},
                                           MemoryCase{"gpt-tiny", 1, 3},
                                           MemoryCase{"mlp", 5, 2, Precision::kBf16},
                                           MemoryCase{"gpt-tiny", 5, 2, Precision::kBf16}),
                         [](const auto& tested) {
                           return test::tested_name(
                                      {{tested.param.model, tested.param.precision}, 0}) +
                                  std::to_string(tested.param.sequence);
                         });

}  // namespace stage_memory_test
}  // namespace weir::stage
