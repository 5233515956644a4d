// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"
#include "worker/emulate/stages.h"
#include "worker/stage/ops/bf16.h"

namespace weir::emulate {
namespace emulated_stage_test {

using namespace std::chrono_literals;
using device::Buffer;
using stage::Lateness, stage::Model, stage::Precision, stage::Stage;
using std::chrono::nanoseconds;
using SteadyClock = std::chrono::steady_clock;

class Emulated : public ::testing::Test {
 protected:
  std::unique_ptr<Stage> emulated(nanoseconds forward, nanoseconds backward, nanoseconds update,
                                  std::function<double(std::int64_t, nanoseconds)> slowness = {}) {
    StageTimes times{.forward = [=](int samples) { return samples * forward; },
                     .backward = [=](int samples) { return samples * backward; },
                     .update = update,
                     .slowness = std::move(slowness)};
    return emulated_stage(test::stage_of(model_, 0, 7, *device_), std::move(times), lateness_);
  }

  const Model model_ = test::model_of(test::small_options("mlp"));
  const std::unique_ptr<device::Device> device_ = device::make_host_device();
  const std::shared_ptr<Lateness> lateness_ = std::make_shared<Lateness>();
  const test::Batch batch_{model_.options, 2, 1};
};

TEST_F(Emulated, TakesAtLeastTheTimeOfTheProfile) {
  const auto stage = emulated(4ms, 6ms, 10ms);
  stage->begin_step(0, 2);

  const auto start = SteadyClock::now();
  test::forward(*stage, 0, Buffer(), batch_.tokens());
  const auto forward_end = SteadyClock::now();
  test::backward(*stage, 0, Buffer());
  const auto backward_end = SteadyClock::now();
  stage->optimizer_step();
  const auto end = SteadyClock::now();

  EXPECT_GE(forward_end - start, 8ms);
  EXPECT_GE(backward_end - forward_end, 12ms);
  EXPECT_GE(end - backward_end, 10ms);
}

TEST_F(Emulated, TakesTheTimesOfTheTwoPartsOfASplitBackward) {
  const auto constant = [](nanoseconds time) { return [=](int) { return time; }; };
  StageTimes times{.forward = constant(1ms),
                   .backward = constant(1s),
                   .backward_input = constant(5ms),
                   .backward_weights = constant(15ms)};
  const auto stage = emulated_stage(test::stage_of(model_, 0, 7, *device_), times, lateness_);
  stage->begin_step(0, 2);
  test::forward(*stage, 0, Buffer(), batch_.tokens());

  const auto start = SteadyClock::now();
  test::backward_input(*stage, 0, Buffer());
  const auto between = SteadyClock::now();
  ASSERT_TRUE(stage->backward_weights(0));
  const auto end = SteadyClock::now();

  EXPECT_GE(between - start, 5ms);
  EXPECT_GE(end - between, 15ms);
  EXPECT_LT(end - start, 1s);
}

TEST_F(Emulated, TakesAllOfTheBackwardForItsFirstPartWhereTheProfileHasNoParts) {
  const auto stage = emulated(1ms, 6ms, 0ns);
  stage->begin_step(0, 2);
  test::forward(*stage, 0, Buffer(), batch_.tokens());
  const auto start = SteadyClock::now();
  test::backward_input(*stage, 0, Buffer());
  EXPECT_GE(SteadyClock::now() - start, 12ms);
  const auto ops = static_cast<std::int64_t>(lateness_->samples.size()) + lateness_->overruns;
  ASSERT_TRUE(stage->backward_weights(0));
  EXPECT_EQ(static_cast<std::int64_t>(lateness_->samples.size()) + lateness_->overruns, ops)
      << "not emulated";
}

TEST_F(Emulated, SumsOfLayersSetOutOneByOne) {
  constexpr std::size_t kLayers = 8;
  const auto until = [](std::size_t layer, int) { return nanoseconds(5ms) * (kLayers - layer); };
  StageTimes times{.forward = [](int) { return 1ms; },
                   .backward = [](int) { return 40ms; },
                   .backward_input = [](int) { return 1ms; },
                   .backward_weights = [](int) { return 40ms; },
                   .backward_until = until,
                   .weights_until = until};
  for (const bool split : {false, true}) {
    const auto stage = emulated_stage(test::stage_of(model_, 0, 7, *device_), times, lateness_);
    stage->begin_step(0, 2);
    test::forward(*stage, 0, Buffer(), batch_.tokens());
    if (split) test::backward_input(*stage, 0, Buffer());
    const auto ops = static_cast<std::int64_t>(lateness_->samples.size()) + lateness_->overruns;
    std::vector<std::size_t> order;
    const auto start = SteadyClock::now();
    stage->on_layer_summed([&](std::size_t layer) {
      order.push_back(layer);
      EXPECT_GE(SteadyClock::now() - start, until(layer, 2)) << layer;
    });
    if (split) {
      ASSERT_TRUE(stage->backward_weights(0));
    } else {
      test::backward(*stage, 0, Buffer());
    }
    EXPECT_EQ(order, (std::vector<std::size_t>{7, 6, 5, 4, 3, 2, 1, 0}));
    EXPECT_EQ(static_cast<std::int64_t>(lateness_->samples.size()) + lateness_->overruns, ops + 1)
        << "one op";
  }
}

TEST_F(Emulated, EvaluatesInTheTimeOfAForward) {
  const auto stage = emulated(4ms, 1s, 1s);
  stage->begin_evaluation();

  const auto start = SteadyClock::now();
  const auto found = stage->evaluate(Buffer(), batch_.tokens());
  const auto took = SteadyClock::now() - start;

  ASSERT_TRUE(found);
  EXPECT_GT(found->loss_sum, 0);
  EXPECT_GE(took, 8ms);
  EXPECT_LT(took, 1s);
}

TEST_F(Emulated, TakesLongerWhileItIsSlow) {
  std::vector<nanoseconds> asked;  // times since the first step
  const auto stage = emulated(2ms, 1ms, 1ms, [&](std::int64_t step, nanoseconds since_start) {
    asked.push_back(since_start);
    return step == 2 ? 10.0 : 1.0;
  });
  std::vector<nanoseconds> took;
  for (int step = 0; step < 2; ++step) {
    stage->begin_step(step, 2);
    const auto start = SteadyClock::now();
    test::forward(*stage, 0, Buffer(), batch_.tokens());
    test::backward(*stage, 0, Buffer());
    stage->optimizer_step();
    took.push_back(SteadyClock::now() - start);
  }

  EXPECT_GE(took[0], 7ms);
  EXPECT_GE(took[1], 70ms);
  ASSERT_EQ(asked.size(), 6U);
  EXPECT_GE(asked[3], took[0]);
  EXPECT_LT(asked[0], took[0]);
}

TEST_F(Emulated, CountsEachOpAsLateOrOverrun) {
  const auto padded = emulated(1s / 100, 1s / 100, 0ns);
  padded->begin_step(0, 2);
  test::forward(*padded, 0, Buffer(), batch_.tokens());
  test::backward(*padded, 0, Buffer());
  padded->optimizer_step();  // not emulated: counts as neither

  EXPECT_EQ(static_cast<std::int64_t>(lateness_->samples.size()) + lateness_->overruns, 2);
  for (const auto late : lateness_->samples) EXPECT_GE(late, 0ns);
}

TEST_F(Emulated, CountsWorkThatIsSlowerThanTheProfile) {
  const auto stage = emulated(0ns, 0ns, 1ns);
  stage->begin_step(0, 2);
  test::forward(*stage, 0, Buffer(), batch_.tokens());
  test::backward(*stage, 0, Buffer());
  stage->optimizer_step();

  EXPECT_EQ(lateness_->overruns, 3);
  EXPECT_TRUE(lateness_->samples.empty());
}

TEST_F(Emulated, DoesTheRealWork) {
  const auto train = [&](Stage& stage) {
    for (int step = 0; step < 2; ++step) {
      stage.begin_step(step, 2);
      test::forward(stage, 0, Buffer(), batch_.tokens());
      test::backward(stage, 0, Buffer());
      stage.optimizer_step();
    }
    return stage.loss();
  };
  const auto padded = emulated(1us, 1us, 1us);
  const auto real = test::stage_of(model_, 0, 7, *device_);

  EXPECT_EQ(train(*padded), train(*real));
  EXPECT_TRUE(test::parameter_bits(*padded) == test::parameter_bits(*real));
  EXPECT_EQ(padded->activation_bytes(), 0);
  EXPECT_EQ(padded->output_bytes(2), real->output_bytes(2));
  EXPECT_EQ(padded->input_bytes(2), real->input_bytes(2));
}

TEST_F(Emulated, IdleStageHandsOnFreshRandomNumbersOfTheRightSizeAndTrainsNothing) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    auto options = test::small_options("gpt-tiny");
    options.precision = precision;
    const Model model = test::model_of(options);
    const auto stage = idle_stage(test::stage_of(model, 1, 1, *device_), precision);
    const auto before = test::parameter_bits(*stage);
    stage->begin_step(0, 2);

    const Buffer output = test::forward(*stage, 0, Buffer(), batch_.tokens());
    const Buffer again = test::forward(*stage, 1, Buffer(), batch_.tokens());
    const Buffer gradient = test::backward(*stage, 0, Buffer());
    stage->optimizer_step();

    EXPECT_EQ(static_cast<std::int64_t>(output.size()), stage->output_bytes(2));
    EXPECT_EQ(static_cast<std::int64_t>(gradient.size()), stage->input_bytes(2));
    EXPECT_NE(output.data(), again.data());
    std::vector<float> values(output.size() / element_bytes(precision));
    if (precision == Precision::kBf16) {
      stage::ops::widen(values.size(), output.as<stage::ops::Bf16>(), values.data());
    } else {
      std::memcpy(values.data(), output.data(), output.size());
    }
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    EXPECT_TRUE(*least >= -1 && *least < -0.9 && *most <= 1 && *most > 0.9) << *least << *most;
    EXPECT_TRUE(test::parameter_bits(*stage) == before);
    EXPECT_TRUE(std::isnan(stage->loss()));
  }
}

TEST_F(Emulated, IdleStagesKnowNoLossOfAValidation) {
  const auto stage = idle_stage(test::stage_of(model_, 0, 7, *device_), Precision::kFp32);
  stage->begin_evaluation();
  const auto found = stage->evaluate(Buffer(), batch_.tokens());
  ASSERT_TRUE(found);
  EXPECT_TRUE(std::isnan(found->loss_sum));
}

TEST_F(Emulated, IdleStagesAtTheEndsHandOnNothing) {
  const auto stage = idle_stage(test::stage_of(model_, 0, 7, *device_), Precision::kFp32);

  EXPECT_EQ(test::forward(*stage, 0, Buffer(), batch_.tokens()).size(), 0U);
  EXPECT_EQ(test::backward(*stage, 0, Buffer()).size(), 0U);
}

}  // namespace emulated_stage_test
}  // namespace weir::emulate
