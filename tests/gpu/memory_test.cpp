// SPDX-License-Identifier: Apache-2.0
// What a stage takes beside its parameters is what the planner's formula says (engine/plan_rules):
// activations in flight and the largest transient, within 5 %. On the host too, as a check of the
// test.
#include <algorithm>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"

namespace weir::test {
namespace memory_test {

class GpuMemory
    : public testing::TestWithParam<std::tuple<const char*, const char*, int, stage::Precision>> {};

TEST_P(GpuMemory, PeakIsThatOfTheFormula) {
  const auto [place, name, in_flight, precision] = GetParam();
  auto opened = device::open_device(place);
  if (!opened) GTEST_SKIP() << opened.error().message;
  device::Device& device = **opened;
  stage::ModelOptions options;
  options.name = name;
  options.precision = precision;
  options.sequence = 128;
  const stage::Model model = model_of(options);
  constexpr int kSamples = 2;
  const Batch batch(options, kSamples, 1);
  std::int64_t activations = 0, transient = 0;
  for (const auto& layer : model.layers) {
    activations += kSamples * layer.activation_bytes_per_sample;
    transient = std::max(transient, kSamples * layer.transient_bytes_per_sample);
  }
  const auto stage = stage_of(model, 0, last_layer(model), device);
  const std::int64_t before = device.bytes_in_use();
  static_cast<void>(device.take_recent_peak());

  stage->begin_step(0, in_flight * kSamples);
  for (int m = 0; m < in_flight; ++m) forward(*stage, m, {}, batch.tokens());
  for (int m = 0; m < in_flight; ++m) backward(*stage, m, {});

  const auto measured = static_cast<double>(device.take_recent_peak() - before);
  const auto formula = static_cast<double>(in_flight * activations + transient);
  EXPECT_NEAR(measured / formula, 1, 0.05) << measured << " bytes, formula " << formula;
}

INSTANTIATE_TEST_SUITE_P(
    Models, GpuMemory,
    testing::Combine(testing::Values("cpu", "cuda"), testing::Values("mlp", "gpt-tiny", "gpt-mini"),
                     testing::Values(1, 4),
                     testing::Values(stage::Precision::kFp32, stage::Precision::kBf16)),
    [](const auto& tested) {
      std::string name = std::string(std::get<0>(tested.param)) + "_" + std::get<1>(tested.param) +
                         "_" + std::to_string(std::get<2>(tested.param));
      if (std::get<3>(tested.param) == stage::Precision::kBf16) name += "bf16";
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace memory_test
}  // namespace weir::test
