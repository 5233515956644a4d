// SPDX-License-Identifier: Apache-2.0
// Small models learn, along a pinned curve. The data files hold the losses of 20 steps as hex
// floats; they were written by this program and change only with the mathematics (a failure prints
// the new lines). 1e-6 allows for another C library's pow and log, nothing else differs between
// machines.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"
#include "worker/data/dataset.h"

namespace weir::stage {
namespace training_test {

using device::Buffer;

constexpr int kMicroBatches = 2, kSamples = 2, kSequence = 16;

std::vector<double> losses_of(const std::string& name, int steps, double learning_rate,
                              Precision precision = Precision::kFp32) {
  ModelOptions options;
  options.name = name;
  options.precision = precision;
  options.sequence = kSequence;
  options.learning_rate = learning_rate;
  const Model model = test::model_of(options);
  const auto device = device::make_host_device();
  const auto stage = test::stage_of(model, 0, test::last_layer(model), *device);
  const auto data = data::make_synthetic(options.vocabulary, kSequence, 1);
  std::vector<std::int32_t> inputs(kSamples * kSequence), targets(kSamples * kSequence);

  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    stage->begin_step(step, kMicroBatches * kSamples);
    for (int m = 0; m < kMicroBatches; ++m) {
      for (int i = 0; i < kSamples; ++i) {
        const auto at = static_cast<std::size_t>(i * kSequence);
        EXPECT_TRUE(data->sample(step, m * kSamples + i, kMicroBatches * kSamples,
                                 std::span(inputs).subspan(at, kSequence),
                                 std::span(targets).subspan(at, kSequence)));
      }
      test::forward(*stage, m, Buffer(), {inputs, targets, kSamples});
      test::backward(*stage, m, Buffer());
    }
    stage->optimizer_step();
    losses.push_back(stage->loss());
  }
  return losses;
}

std::string as_text(const std::vector<double>& losses) {
  std::ostringstream text;
  for (const double loss : losses) text << std::hexfloat << loss << '\n';
  return text.str();
}

std::vector<double> pinned(const std::string& file) {
  std::ifstream stream(std::string(WEIR_SOURCE_DIR) + "/tests/data/" + file);
  std::vector<double> losses;
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with('#')) losses.push_back(std::strtod(line.c_str(), nullptr));
  }
  return losses;
}

class Training : public ::testing::TestWithParam<std::string> {};

TEST_P(Training, FollowsThePinnedCurve) {
  const auto expected = pinned("loss-" + GetParam() + ".txt");
  const auto actual = losses_of(GetParam(), 20, 3e-3);

  ASSERT_EQ(expected.size(), actual.size()) << as_text(actual);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i] / expected[i], 1, 1e-6) << "step " << i << '\n' << as_text(actual);
  }
}

TEST_P(Training, LearnsASyntheticLanguage) {
  const auto losses = losses_of(GetParam(), 60, 5e-3);
  double last = 0;
  for (std::size_t i = losses.size() - 5; i < losses.size(); ++i) last += losses[i] / 5;

  EXPECT_NEAR(losses.front(), std::log(256), 1);
  EXPECT_LT(last, 0.6 * std::log(256));
}

// The two runs part by rounding only. More in the MLP: its ReLUs turn on and off where rounding
// carries a sum across 0.
TEST_P(Training, InBf16LearnsAsInFloat) {
  constexpr int kSteps = 60, kEnd = 10;
  const bool mlp = GetParam() == "mlp";
  const double of_a_step = mlp ? 0.05 : 0.01, of_the_end = mlp ? 0.015 : 0.002;
  const auto wide = losses_of(GetParam(), kSteps, 1e-3);
  const auto narrow = losses_of(GetParam(), kSteps, 1e-3, Precision::kBf16);
  double wide_end = 0, narrow_end = 0;
  for (std::size_t i = 0; i < kSteps; ++i) {
    EXPECT_NEAR(narrow[i] / wide[i], 1, of_a_step) << "step " << i;
    if (i + kEnd < kSteps) continue;
    wide_end += wide[i] / kEnd;
    narrow_end += narrow[i] / kEnd;
  }

  EXPECT_NE(narrow, wide);
  EXPECT_NEAR(narrow_end / wide_end, 1, of_the_end);
}

INSTANTIATE_TEST_SUITE_P(Models, Training, ::testing::Values("mlp", "gpt-tiny"),
                         test::model_test_name);

}  // namespace training_test
}  // namespace weir::stage
