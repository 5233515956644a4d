// SPDX-License-Identifier: Apache-2.0
// Each schedule against its closed form.
#include "worker/stage/learning_rate.h"

#include <cmath>
#include <numbers>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::stage {
namespace learning_rate_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kRate = 0.02;
constexpr int kWarmup = 10;
constexpr std::int64_t kTotal = 110;

ModelOptions options_of(const std::string& schedule, std::optional<double> least = {},
                        std::int64_t decay = 0) {
  ModelOptions options;
  options.learning_rate = kRate;
  options.warmup_steps = kWarmup;
  options.schedule = schedule;
  options.total_steps = kTotal;
  options.min_ratio = least;
  options.decay_steps = decay;
  return options;
}

TEST(LearningRate, WarmsUpAlongALineInEverySchedule) {
  for (const char* schedule : {"constant", "cosine", "linear", "wsd"}) {
    for (int step = 0; step < kWarmup; ++step) {
      EXPECT_DOUBLE_EQ(learning_rate(options_of(schedule), step), kRate * (step + 1) / kWarmup);
    }
  }
}

TEST(LearningRate, ConstantStaysForEver) {
  for (const std::int64_t step : {10, 50, 110, 100000}) {
    EXPECT_EQ(learning_rate(options_of("constant"), step), kRate);
  }
}

TEST(LearningRate, CosineIsHalfACosineDownToItsLeast) {
  for (const double least : {0.1, 0.0, 0.25}) {
    const ModelOptions options = least == 0.1 ? options_of("cosine") : options_of("cosine", least);
    for (std::int64_t step = kWarmup; step <= kTotal; ++step) {
      const double done = static_cast<double>(step - kWarmup) / (kTotal - kWarmup);
      const double half = (1 + std::cos(std::numbers::pi * done)) / 2;
      EXPECT_NEAR(learning_rate(options, step), kRate * (least + (1 - least) * half), 1e-12);
    }
    EXPECT_NEAR(learning_rate(options, 10 * kTotal), kRate * least, 1e-12);
  }
}

TEST(LearningRate, LinearIsALineDownToItsLeast) {
  for (const double least : {0.0, 0.5}) {
    const ModelOptions options = least == 0 ? options_of("linear") : options_of("linear", least);
    for (std::int64_t step = kWarmup; step <= kTotal; ++step) {
      const double left = static_cast<double>(kTotal - step) / (kTotal - kWarmup);
      EXPECT_NEAR(learning_rate(options, step), kRate * (least + (1 - least) * left), 1e-12);
    }
    EXPECT_EQ(learning_rate(options, 10 * kTotal), kRate * least);
  }
}

TEST(LearningRate, WsdStaysThenFallsOverItsLastSteps) {
  struct Case {
    ModelOptions options;
    std::int64_t decay;
    double least;
  };
  for (const Case& one : {Case{options_of("wsd"), 11, 0}, Case{options_of("wsd", 0.2, 40), 40, 0.2},
                          Case{options_of("wsd", {}, 1), 1, 0}}) {
    for (std::int64_t step = kWarmup; step <= kTotal - one.decay; ++step) {
      EXPECT_EQ(learning_rate(one.options, step), kRate) << step;
    }
    for (std::int64_t step = kTotal - one.decay; step <= kTotal; ++step) {
      const double left = static_cast<double>(kTotal - step) / static_cast<double>(one.decay);
      EXPECT_NEAR(learning_rate(one.options, step), kRate * (one.least + (1 - one.least) * left),
                  1e-12);
    }
    EXPECT_EQ(learning_rate(one.options, 10 * kTotal), kRate * one.least);
  }
}

TEST(LearningRate, AScheduleShorterThanItsWarmUpHasNoStepToFall) {
  ModelOptions options = options_of("linear");
  options.total_steps = 5;
  EXPECT_EQ(learning_rate(options, 4), kRate * 0.5);
  EXPECT_EQ(learning_rate(options, 11), 0);
}

TEST(LearningRate, AScheduleThatDoesNotFitIsNamed) {
  const auto message = [](const ModelOptions& options) {
    const Status checked = check_schedule(options);
    return checked ? "" : checked.error().message;
  };
  EXPECT_EQ(message(options_of("wsd", 0.1, 110)), "");
  EXPECT_THAT(message(options_of("steps")), HasSubstr("steps is none of constant, cosine,"));
  EXPECT_THAT(message(options_of("linear", 1.5)), StartsWith("min-lr-ratio:"));
  EXPECT_EQ(message(options_of("wsd", {}, 111)), "decay-steps: 111 are more than all 110 steps");
  ModelOptions endless = options_of("wsd");
  endless.total_steps = 0;
  EXPECT_THAT(message(endless), HasSubstr("wsd needs the total number of steps"));
}

}  // namespace learning_rate_test
}  // namespace weir::stage
