// SPDX-License-Identifier: Apache-2.0
// Evaluation gives the loss that a forward gives, and leaves nothing behind.
#include <gtest/gtest.h>

#include "tests/support/strict_device.h"
#include "tests/worker/stage/stage_testing.h"

namespace weir::stage {
namespace evaluate_test {

class Evaluation : public testing::TestWithParam<test::TestedModel> {
 protected:
  static constexpr int kSamples = 3;
  const Model model_ = test::model_of(test::small_options(GetParam().name, GetParam().precision));
  const test::Batch training_{model_.options, kSamples, 1}, held_out_{model_.options, kSamples, 2};

  double evaluated(Stage& stage) {
    stage.begin_evaluation();
    const auto found = stage.evaluate({}, held_out_.tokens());
    EXPECT_TRUE(found);
    return found->loss_sum / (kSamples * model_.options.sequence);
  }
  void train(Stage& stage, std::int64_t step) {
    stage.begin_step(step, kSamples);
    test::forward(stage, 0, {}, training_.tokens());
    test::backward(stage, 0, {});
    stage.optimizer_step();
  }
};

TEST_P(Evaluation, IsTheLossOfAForwardWithTheNewestParameters) {
  const auto host = device::make_host_device();
  test::StrictDevice strict_device;
  const auto stage = test::stage_of(model_, 0, test::last_layer(model_), *host);
  const auto strict = *test::make_strict_stage(model_, 0, test::last_layer(model_), strict_device);
  for (int step = 0; step < 3; ++step) {
    train(*stage, step);
    train(*strict, step);
    const double found = evaluated(*stage);
    EXPECT_EQ(evaluated(*strict), found);

    stage->begin_step(step + 1, kSamples);
    test::forward(*stage, 0, {}, held_out_.tokens());

    EXPECT_EQ(stage->loss(), found);
  }
}

TEST_P(Evaluation, KeepsNothing) {
  const auto host = device::make_host_device();
  const auto stage = test::stage_of(model_, 0, test::last_layer(model_), *host);
  train(*stage, 0);
  const auto bits = test::parameter_bits(*stage);
  const double loss = stage->loss();
  const std::int64_t held = host->bytes_in_use(), peak = host->bytes_peak();

  evaluated(*stage);

  EXPECT_EQ(host->bytes_in_use(), held);
  EXPECT_LE(host->bytes_peak(), peak) << "less than training takes";
  EXPECT_EQ(stage->activation_bytes(), 0);
  EXPECT_EQ(stage->loss(), loss);
  EXPECT_TRUE(test::parameter_bits(*stage) == bits);
}

TEST_P(Evaluation, RefusesWrongTokens) {
  const auto host = device::make_host_device();
  const auto stage = test::stage_of(model_, 0, test::last_layer(model_), *host);
  const std::vector<std::int32_t> wrong(
      static_cast<std::size_t>(kSamples * model_.options.sequence), model_.options.vocabulary);
  const auto found = stage->evaluate({}, {.inputs = wrong, .targets = wrong, .samples = kSamples});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kInvalid);
}

INSTANTIATE_TEST_SUITE_P(Models, Evaluation, testing::ValuesIn(test::tested_models()),
                         test::tested_name);

}  // namespace evaluate_test
}  // namespace weir::stage
