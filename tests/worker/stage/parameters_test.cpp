// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/parameters.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"
#include "worker/stage/ops/bf16.h"

namespace weir::stage {
namespace parameters_test {

using Part = LayerParameters::Part;
using In = LayerParameters::GradientIn;

LayerParameters made(const std::vector<ParameterSpec>& specs, int layer, std::uint64_t seed,
                     device::Device& device, Precision precision = Precision::kFp32) {
  ModelOptions options;
  options.seed = seed;
  options.precision = precision;
  auto result =
      LayerParameters::make(specs, layer, options, device, *ops::make_host_kernels(precision));
  EXPECT_TRUE(result.ok());
  EXPECT_TRUE(result->set_initial(seed, device));
  return *std::move(result);
}

std::vector<float> values_of(const LayerParameters& parameters, std::size_t index,
                             std::size_t count) {
  const auto* values = ops::as<float>(parameters.values()[index]);
  return {values, values + count};
}

TEST(Parameters, StartFromSeedLayerAndNameOnly) {
  const auto device = device::make_host_device();
  const ParameterSpec a{"a", {10, 10}, 0, 0.5F};
  const ParameterSpec b{"b", {10, 10}, 0, 0.5F};
  const auto alone = values_of(made({a}, 3, 1, *device), 0, 100);

  EXPECT_EQ(values_of(made({b, a}, 3, 1, *device), 1, 100), alone);
  EXPECT_NE(values_of(made({b}, 3, 1, *device), 0, 100), alone);
  EXPECT_NE(values_of(made({a}, 4, 1, *device), 0, 100), alone);
  EXPECT_NE(values_of(made({a}, 3, 2, *device), 0, 100), alone);
}

TEST(Parameters, BeginAtMultiplesOfTheirAlignment) {
  const auto device = device::make_host_device();
  std::vector<ParameterSpec> specs = {{"a", {5}, 1, 0}, {"b", {33}, 1, 0}, {"c", {1}, 1, 0}};
  for (ParameterSpec& spec : specs) spec.alignment = 32;
  const LayerParameters parameters = made(specs, 0, 1, *device);

  const auto begin = [&](std::size_t i) { return ops::as<float>(parameters.values()[i]); };
  EXPECT_EQ(begin(1) - begin(0), 32);
  EXPECT_EQ(begin(2) - begin(1), 64);
  EXPECT_EQ(parameters.gradient().size(), 128U);
  const std::vector<float> all = values_of(parameters, 0, 128);
  EXPECT_EQ(std::ranges::count(all, 1.0F), 5 + 33 + 1) << "gaps are zero";
}

TEST(Parameters, HaveTheMeanAndDeviationOfTheirSpecification) {
  const auto device = device::make_host_device();
  const auto values = values_of(made({{"w", {100, 100}, 2, 0.5F}}, 0, 1, *device), 0, 10000);
  double mean = 0, square = 0;
  for (const float value : values) mean += value / 1e4;
  for (const float value : values) square += (value - mean) * (value - mean) / 1e4;

  EXPECT_NEAR(mean, 2, 0.02);
  EXPECT_NEAR(std::sqrt(square), 0.5, 0.01);
}

TEST(Parameters, DecayMatricesButNotVectors) {
  const auto device = device::make_host_device();
  auto parameters = made({{"w", {1, 2}, 1, 0}, {"b", {2}, 1, 0}}, 0, 1, *device);
  const auto kernels = ops::make_host_kernels(Precision::kFp32);
  parameters.zero_sums(*kernels);
  parameters.update(*kernels, In::kSums, {0.1F, 0.9F, 0.9F, 1e-8F, 0.5F, 0.1F, 0.1F});

  EXPECT_FLOAT_EQ(values_of(parameters, 0, 1)[0], 0.95F);
  EXPECT_EQ(values_of(parameters, 1, 1)[0], 1);
}

TEST(Parameters, InBf16AreRoundedWhenTheyAreRefreshedAndStartAsInFloat) {
  const auto device = device::make_host_device();
  const std::vector<ParameterSpec> specs = {{"w", {2, 3}, 1, 0.5F}, {"b", {3}, 2, 0.5F}};
  auto parameters = made(specs, 0, 1, *device, Precision::kBf16);
  const auto kernels = ops::make_host_kernels(Precision::kBf16);
  std::vector<Parameter> list;
  parameters.append_to(list);
  EXPECT_EQ(values_of(made(specs, 0, 1, *device), 0, 6),
            std::vector<float>(list[0].value.begin(), list[0].value.end()));

  list[1].value[2] = 1 + 0x1p-7F + 0x1p-20F;  // as a checkpoint would
  parameters.refresh(*kernels);

  EXPECT_EQ(ops::as<ops::Bf16>(parameters.values()[1])[2].bits, 0x3f81);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(ops::as<ops::Bf16>(parameters.values()[0])[i].bits,
              ops::rounded<ops::Bf16>(list[0].value[i]).bits);
  }
}

TEST(Parameters, ListTheirFourParts) {
  const auto device = device::make_host_device();
  const auto parameters = made({{"w", {2, 3}, 1, 0}, {"b", {2}, 0, 0}}, 5, 1, *device);
  std::vector<Parameter> list;
  parameters.append_to(list);

  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].layer, 5);
  EXPECT_EQ(list[0].name, "w");
  EXPECT_EQ(list[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(list[0].value.size(), 6U);
  EXPECT_EQ(list[1].value.data(), ops::as<float>(parameters.values()[1]));
  EXPECT_EQ(list[1].gradient.data(), parameters.gradients()[1]);
  EXPECT_EQ(list[1].adam_v.data() + 2, list[0].value.data() + 4 * 8);
  EXPECT_EQ(parameters.gradient().data(), list[0].gradient.data());
  EXPECT_EQ(parameters.gradient().size(), 8U);
  EXPECT_EQ(static_cast<void*>(parameters.sums().data() + 8), list[0].value.data());
}

std::vector<ParameterSpec> frozen_between() {
  std::vector<ParameterSpec> specs = {{"a", {2}, 1, 0}, {"base", {2, 3}, 2, 0}, {"b", {3}, 3, 0}};
  specs[1].trainable = false;
  return specs;
}

TEST(Parameters, ThatAreFrozenHaveAValueAlone) {
  const auto device = device::make_host_device();
  const auto kernels = ops::make_host_kernels(Precision::kFp32);
  auto parameters = made(frozen_between(), 0, 1, *device);
  EXPECT_EQ(device->bytes_in_use(), 24 * 5 + 4 * 6);
  EXPECT_EQ(parameters.gradients()[1], nullptr);
  EXPECT_EQ(parameters.gradient().size(), 5U);
  EXPECT_EQ(parameters.gradients()[2] - parameters.gradients()[0], 2);

  std::vector<Parameter> list;
  parameters.append_to(list);
  ASSERT_EQ(list.size(), 3U);
  EXPECT_TRUE(list[1].frozen());
  EXPECT_FALSE(list[2].frozen());
  EXPECT_EQ(list[1].value.size(), 6U);
  EXPECT_TRUE(list[1].adam_m.empty() && list[1].adam_v.empty());
  EXPECT_EQ(list[2].adam_m.data(), list[2].gradient.data() + 5);
  EXPECT_EQ(list[2].adam_v.data() + 3, list[0].gradient.data() + 15);

  parameters.zero_sums(*kernels);
  std::ranges::fill(parameters.gradient(), 1.0F);
  parameters.sum_gradients(*kernels, Part::kAll);
  double squares = 0;
  parameters.sum_squares(*kernels, In::kSums, &squares);
  EXPECT_EQ(squares, 5);
  parameters.round_sums(*kernels);
  parameters.sum_squares(*kernels, In::kValues, &squares);
  EXPECT_EQ(squares, 5);
  parameters.update(*kernels, In::kValues, {0.1F, 0.9F, 0.9F, 1e-8F, 0.5F, 0.1F, 0.1F});
  EXPECT_EQ(values_of(parameters, 1, 6), std::vector<float>(6, 2));
  EXPECT_NEAR(values_of(parameters, 2, 1)[0], 2.9, 1e-6);
  EXPECT_EQ(device->bytes_peak(), 24 * 5 + 4 * 6);
}

TEST(Parameters, ThatAreFrozenAreRoundedInBf16) {
  const auto device = device::make_host_device();
  auto parameters = made(frozen_between(), 0, 1, *device, Precision::kBf16);
  EXPECT_EQ(device->bytes_in_use(), 26 * 5 + 6 * 6);
  parameters.refresh(*ops::make_host_kernels(Precision::kBf16));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ops::as<ops::Bf16>(parameters.values()[i])[1].bits,
              ops::rounded<ops::Bf16>(static_cast<float>(i + 1)).bits);
  }
}

TEST(Parameters, OfALayerMayAllBeFrozen) {
  const auto device = device::make_host_device();
  const auto kernels = ops::make_host_kernels(Precision::kFp32);
  std::vector<ParameterSpec> specs = {{"base", {2, 3}, 2, 0}};
  specs[0].trainable = false;
  auto parameters = made(specs, 0, 1, *device);
  EXPECT_EQ(device->bytes_in_use(), 4 * 6);
  parameters.zero_sums(*kernels);
  parameters.sum_gradients(*kernels, Part::kAll);
  parameters.sum_gradients(*kernels, Part::kLate);
  parameters.round_sums(*kernels);
  double squares = 1;
  parameters.sum_squares(*kernels, In::kSums, &squares);
  EXPECT_EQ(squares, 0);
  parameters.update(*kernels, In::kSums, {0.1F, 0.9F, 0.9F, 1e-8F, 0.5F, 0.1F, 0.1F});
  EXPECT_EQ(values_of(parameters, 0, 6), std::vector<float>(6, 2));
}

TEST(Parameters, TakeThePartsOfASplitBackwardByThemselves) {
  const auto device = device::make_host_device();
  auto parameters = made(
      {{"ln", {2}}, {"w", {2, 3}, 0, 0, true}, {"b", {3}, 0, 0, true}, {"n", {1}}}, 0, 1, *device);
  const auto kernels = ops::make_host_kernels(Precision::kFp32);
  parameters.zero_sums(*kernels);
  std::ranges::fill(parameters.gradient(), 1.0F);
  const auto sums = [&] {
    return std::vector<double>(parameters.sums().begin(), parameters.sums().end());
  };

  parameters.sum_gradients(*kernels, Part::kOther);
  EXPECT_EQ(sums(), (std::vector<double>{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
  parameters.sum_gradients(*kernels, Part::kLate);
  EXPECT_EQ(sums(), std::vector<double>(12, 1));
  parameters.sum_gradients(*kernels, Part::kAll);
  EXPECT_EQ(sums(), std::vector<double>(12, 2));

  const auto gradient = [&] {
    return std::vector<float>(parameters.gradient().begin(), parameters.gradient().end());
  };
  parameters.zero_gradients(*kernels, Part::kLate);
  EXPECT_EQ(gradient(), (std::vector<float>{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
  std::ranges::fill(parameters.gradient(), 1.0F);
  parameters.zero_gradients(*kernels, Part::kOther);
  EXPECT_EQ(gradient(), (std::vector<float>{0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}));
  parameters.zero_gradients(*kernels, Part::kAll);
  EXPECT_EQ(gradient(), std::vector<float>(12, 0));
}

// What is read: sums that no float holds give the update of the floats nearest to them.
TEST(Parameters, AreUpdatedWithTheSameBitsFromSumsAndFromWhatTheyRoundTo) {
  const auto device = device::make_host_device();
  const auto kernels = ops::make_host_kernels(Precision::kFp32);
  const ops::AdamWStep step{0.1F, 0.9F, 0.9F, 1e-8F, 0.5F, 0.1F, 0.1F};
  const auto updated = [&](In in) {
    auto parameters = made({{"w", {3, 5}, 1, 0.5F}, {"b", {7}, 1, 0.5F}}, 0, 1, *device);
    for (std::size_t i = 0; i < parameters.sums().size(); ++i) {
      parameters.sums()[i] = 1.0 / static_cast<double>(i + 3);
    }
    std::ranges::fill(parameters.gradient(), 99.0F);
    if (in == In::kValues) parameters.round_sums(*kernels);
    double squares = 0;
    parameters.sum_squares(*kernels, in, &squares);
    parameters.update(*kernels, in, step);
    std::vector<float> all = values_of(parameters, 0, 22);
    const std::span<float> gradient = parameters.gradient();
    all.insert(all.end(), gradient.data() + 22, gradient.data() + 66);  // the moments
    return std::pair(squares, all);
  };
  EXPECT_EQ(updated(In::kSums), updated(In::kValues));
  EXPECT_LT(updated(In::kSums).first, 2);
}

TEST(AdamWStep, CorrectsTheMomentsFromTheFirstStepOn) {
  const auto first = adamw_step(ModelOptions{}, 0);
  const auto second = adamw_step(ModelOptions{}, 1);

  EXPECT_FLOAT_EQ(first.correction1, 0.1F);
  EXPECT_FLOAT_EQ(first.correction2, 0.05F);
  EXPECT_FLOAT_EQ(second.correction1, 0.19F);
}

}  // namespace parameters_test
}  // namespace weir::stage
