// SPDX-License-Identifier: Apache-2.0
// The rules of one stage: gradients of whole models, losses, misuse, no memory left.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/device_around.h"
#include "tests/worker/stage/stage_testing.h"
#include "worker/stage/layer.h"

namespace weir::stage {
namespace stage_test {

using device::Buffer;
using ::testing::HasSubstr;

class WholeModel : public ::testing::TestWithParam<std::string> {
 protected:
  const Model model_ = test::model_of(test::small_options(GetParam()));
  const std::unique_ptr<device::Device> device_ = device::make_host_device();
  const std::unique_ptr<Stage> stage_ =
      test::stage_of(model_, 0, test::last_layer(model_), *device_);
  const test::Batch batch_{model_.options, 2, 1};

  double loss() {
    stage_->begin_step(0, 2);
    test::forward(*stage_, 0, Buffer(), batch_.tokens());
    return stage_->loss();
  }
};

// Each parameter is moved along its own gradient g: the loss must rise by |g|^2 a unit. The step is
// chosen so that the loss changes by about 1e-2 in total: rounding of the float forward (1e-7) and
// the third derivative both stay below the tolerance of 2 %.
TEST_P(WholeModel, HasTheGradientOfItsLossInEveryParameter) {
  loss();
  test::backward(*stage_, 0, Buffer());
  stage_->finish_gradients();
  const std::vector<Parameter> parameters = stage_->parameters();
  std::vector<std::vector<float>> gradients;  // the next forward's begin_step zeroes the stage's
  for (const auto& parameter : parameters) {
    gradients.emplace_back(parameter.gradient.begin(), parameter.gradient.end());
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    const std::vector<float>& gradient = gradients[p];
    const std::vector<float> before(parameter.value.begin(), parameter.value.end());
    double square = 0;
    for (const float g : gradient) square += double{g} * double{g};
    ASSERT_GT(square, 0) << parameter.layer << ' ' << parameter.name;
    const double length = std::sqrt(square);
    const double step = std::min(5e-3 / square, 0.02 / length);
    const auto loss_at = [&](double by) {
      for (std::size_t i = 0; i < before.size(); ++i) {
        parameter.value[i] = static_cast<float>(double{before[i]} + by * double{gradient[i]});
      }
      return loss();
    };
    const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
    loss_at(0);
    EXPECT_NEAR(slope / square, 1, 0.02) << parameter.layer << ' ' << parameter.name;
  }
}

// Against the gradient that the test above has checked: of each parameter, the distance is a few
// roundings of 2^-9; in the MLP more, because some ReLUs fall to the other side of 0, and with
// norms by head, which magnify the roundings of small heads.
TEST_P(WholeModel, InBf16HasTheGradientOfFloatButForRounding) {
  const Model narrow = test::model_of(test::small_options(GetParam(), Precision::kBf16));
  const auto other = test::stage_of(narrow, 0, test::last_layer(narrow), *device_);
  for (Stage* stage : {stage_.get(), other.get()}) {
    stage->begin_step(0, 2);
    test::forward(*stage, 0, Buffer(), batch_.tokens());
    test::backward(*stage, 0, Buffer());
    stage->finish_gradients();
  }
  EXPECT_NEAR(other->loss() / stage_->loss(), 1, 2e-3);
  const double limit = GetParam() == "mlp" ? 0.15 : GetParam() == "gpt-tiny" ? 0.03 : 0.06;
  const std::vector<Parameter> exact = stage_->parameters(), rounded = other->parameters();
  for (std::size_t p = 0; p < exact.size(); ++p) {
    double distance = 0, square = 0;
    for (std::size_t i = 0; i < exact[p].gradient.size(); ++i) {
      const double g = exact[p].gradient[i], difference = rounded[p].gradient[i] - g;
      distance += difference * difference;
      square += g * g;
    }
    EXPECT_LT(std::sqrt(distance / square), limit) << exact[p].layer << ' ' << exact[p].name;
    EXPECT_GT(distance, 0) << exact[p].layer << ' ' << exact[p].name;
  }
}

TEST_P(WholeModel, TellsTheSquaresOfItsGradientByLayer) {
  loss();
  test::backward(*stage_, 0, Buffer());
  const auto squares = stage_->gradient_squares();
  ASSERT_TRUE(squares) << squares.error().message;
  ASSERT_EQ(squares->size(), model_.layers.size());
  std::vector<double> expected(squares->size(), 0.0);
  for (const Parameter& parameter : stage_->parameters()) {
    for (const float g : parameter.gradient) {
      expected[static_cast<std::size_t>(parameter.layer)] += double{g} * double{g};
    }
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR((*squares)[i], expected[i], 1e-13 * expected[i]) << "layer " << i;
    EXPECT_EQ(expected[i] > 0, model_.layers[i].parameter_bytes > 0);
  }
}

TEST_P(WholeModel, ScalesItsGradientWithinTheUpdateOfOneStep) {
  constexpr float kFactor = 0.25F;  // exact, so that the bits can be compared
  std::vector<std::vector<float>> values;
  for (const Parameter& p : stage_->parameters()) {
    values.emplace_back(p.value.begin(), p.value.end());
  }
  // The first moments after a step from the initial state.
  const auto moments = [&](bool scales) {
    const std::vector<Parameter> parameters = stage_->parameters();
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::ranges::copy(values[i], parameters[i].value.begin());
      std::ranges::fill(parameters[i].adam_m, 0.0F);
      std::ranges::fill(parameters[i].adam_v, 0.0F);
    }
    loss();
    test::backward(*stage_, 0, Buffer());
    if (scales) stage_->scale_gradients(kFactor);
    stage_->optimizer_step();
    std::vector<float> all;
    for (const Parameter& p : parameters) {
      all.insert(all.end(), p.adam_m.begin(), p.adam_m.end());
    }
    return all;
  };
  const std::vector<float> plain = moments(false), scaled = moments(true), again = moments(false);

  ASSERT_NE(plain, scaled);
  for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(scaled[i], kFactor * plain[i]) << i;
  EXPECT_EQ(again, plain) << "a factor is for one step";
}

TEST_P(WholeModel, StartsNearTheLossOfGuessing) {
  EXPECT_NEAR(loss(), std::log(13), GetParam() == "mlp" ? 1.5 : 0.3);
}

TEST_P(WholeModel, WeighsMicroBatchesByTheirShareOfTheStep) {
  stage_->begin_step(0, 2);
  test::forward(*stage_, 0, Buffer(), batch_.tokens());
  test::backward(*stage_, 0, Buffer());
  stage_->finish_gradients();
  std::vector<float> once;
  for (const auto& parameter : stage_->parameters()) {
    once.insert(once.end(), parameter.gradient.begin(), parameter.gradient.end());
  }

  stage_->begin_step(0, 4);  // the same samples twice: the same mean gradient
  for (const int micro_batch : {0, 1}) {
    test::forward(*stage_, micro_batch, Buffer(), batch_.tokens());
    test::backward(*stage_, micro_batch, Buffer());
  }
  stage_->finish_gradients();
  std::size_t i = 0;
  for (const auto& parameter : stage_->parameters()) {
    for (const float g : parameter.gradient) ASSERT_NEAR(g, once[i++], 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WholeModel,
                         ::testing::Values("mlp", "gpt-tiny", "llama", test::kEverything),
                         test::model_test_name);

class OneStage : public ::testing::Test {
 protected:
  const Model model_ = test::model_of(test::small_options("mlp"));
  const std::unique_ptr<device::Device> device_ = device::make_host_device();
  const test::Batch batch_{model_.options, 1, 1};

  std::unique_ptr<Stage> stage(int first, int last) {
    return test::stage_of(model_, first, last, *device_);
  }
};

TEST_F(OneStage, MeansTheLossOfTheMicroBatchesSoFar) {
  const auto whole = stage(0, 7);
  const test::Batch other(model_.options, 1, 2);
  const auto loss_of = [&](const test::Batch& batch) {
    whole->begin_step(0, 2);
    test::forward(*whole, 0, Buffer(), batch.tokens());
    return whole->loss();
  };
  const double first = loss_of(batch_), second = loss_of(other);

  whole->begin_step(0, 2);
  EXPECT_TRUE(std::isnan(whole->loss()));
  test::forward(*whole, 0, Buffer(), batch_.tokens());
  test::forward(*whole, 1, Buffer(), other.tokens());
  EXPECT_NEAR(whole->loss(), (first + second) / 2, 1e-12);
}

TEST_F(OneStage, HasNoLossBeforeTheLastLayer) {
  const auto first = stage(0, 3);
  first->begin_step(0, 1);
  test::forward(*first, 0, Buffer(), batch_.tokens());

  EXPECT_TRUE(std::isnan(first->loss()));
}

TEST_F(OneStage, TellsTheSizesOfItsMessages) {
  EXPECT_EQ(stage(0, 3)->input_bytes(2), 0);
  EXPECT_EQ(stage(0, 3)->output_bytes(2), 2 * 4 * 128 * 4);
  EXPECT_EQ(stage(4, 7)->input_bytes(2), 2 * 4 * 128 * 4);
  EXPECT_EQ(stage(4, 7)->output_bytes(2), 0);
  const Model narrow = test::model_of(test::small_options("mlp", Precision::kBf16));
  EXPECT_EQ(test::stage_of(narrow, 0, 3, *device_)->output_bytes(2), 2 * 4 * 128 * 2);
}

TEST_F(OneStage, ForgetsAnAbandonedStep) {
  const auto first = stage(0, 3);
  first->begin_step(0, 1);
  test::forward(*first, 0, Buffer(), batch_.tokens());
  first->begin_step(0, 1);

  EXPECT_EQ(first->activation_bytes(), 0);
  test::forward(*first, 0, Buffer(), batch_.tokens());
}

TEST_F(OneStage, NamesATokenOutsideTheVocabulary) {
  const auto whole = stage(0, 7);
  whole->begin_step(0, 1);
  const std::vector<std::int32_t> inside = {0, 1, 2, 12}, outside = {0, 1, 13, 2};
  for (const Tokens& tokens : {Tokens{inside, outside, 1}, Tokens{outside, inside, 1}}) {
    const auto result = whole->forward(0, Buffer(), tokens);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kInvalid);
    EXPECT_EQ(result.error().message, "token 13 is outside the vocabulary of 13");
  }
  EXPECT_TRUE(whole->forward(0, Buffer(), Tokens{inside, inside, 1}).ok());
}

TEST_F(OneStage, RefusesLayersThatTheModelLacks) {
  for (const auto& [first, last] : {std::pair{-1, 3}, {3, 2}, {0, 8}}) {
    const auto made = make_stage(model_, first, last, *device_);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::kInvalid);
    EXPECT_THAT(made.error().message, HasSubstr("the model has 0..7"));
  }
}

using OneStageDeathTest = OneStage;

TEST_F(OneStageDeathTest, StopsTheProgramWhenTheOrderIsBroken) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto whole = stage(0, 7);
  EXPECT_DEATH(test::forward(*whole, 0, Buffer(), batch_.tokens()), "begin_step comes before");
  whole->begin_step(0, 2);
  test::forward(*whole, 0, Buffer(), batch_.tokens());
  test::forward(*whole, 1, Buffer(), batch_.tokens());
  EXPECT_DEATH(test::forward(*whole, 1, Buffer(), batch_.tokens()), "one forward");
  test::backward(*whole, 1, Buffer());
  EXPECT_DEATH(test::backward(*whole, 0, Buffer()), "rising order");
  EXPECT_DEATH(test::backward(*whole, 5, Buffer()), "backward follows forward");
  test::forward(*whole, 6, Buffer(), batch_.tokens());
  whole->optimizer_step();
  EXPECT_DEATH(test::backward(*whole, 6, Buffer()), "gradients of this step are done");
}

TEST_F(OneStageDeathTest, StopsTheProgramWhenTheOrderOfASplitBackwardIsBroken) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto whole = stage(0, 7);
  whole->begin_step(0, 4);
  for (int m = 0; m < 4; ++m) test::forward(*whole, m, Buffer(), batch_.tokens());
  EXPECT_DEATH(static_cast<void>(whole->backward_weights(0)), "follows backward_input");
  for (int m = 0; m < 3; ++m) test::backward_input(*whole, m, Buffer());
  EXPECT_DEATH(test::backward_input(*whole, 1, Buffer()), "backward follows forward");
  EXPECT_DEATH(test::backward(*whole, 3, Buffer()), "all backwards of a step are whole");
  ASSERT_TRUE(whole->backward_weights(1));
  EXPECT_DEATH(static_cast<void>(whole->backward_weights(0)), "rising order");
}

TEST_F(OneStage, TellsOfALayerWhenItsWeightsAreAdded) {
  const auto whole = stage(0, 7);
  whole->begin_step(0, 1);
  std::vector<std::size_t> told;
  whole->on_layer_summed([&](std::size_t layer) { told.push_back(layer); });
  test::forward(*whole, 0, Buffer(), batch_.tokens());
  test::backward_input(*whole, 0, Buffer());
  EXPECT_TRUE(told.empty());
  ASSERT_TRUE(whole->backward_weights(0));
  EXPECT_EQ(told, (std::vector<std::size_t>{7, 6, 5, 4, 3, 2, 1, 0}));
}

// A layer that says nothing about splitting: one product with a weight, without activations.
class WholeLayer final : public Layer {
 public:
  const LayerInfo& info() const override { return info_; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  std::int64_t input_bytes_per_sample() const override { return 0; }
  Result<Forward> forward(const Pass&, const Buffer&) const override { return Forward{}; }
  Result<Buffer> backward(const Pass& pass, const KeptActivations&,
                          const Buffer& output_gradient) const override {
    pass.gradient[0][0] += 1;
    return output_gradient;
  }

 private:
  LayerInfo info_;
  std::vector<ParameterSpec> parameters_{{"weight", {1}}};
};

TEST_F(OneStage, MayHaveALayerThatCannotSplit) {
  const WholeLayer layer;
  const auto kernels = ops::make_host_kernels(Precision::kFp32);
  float sum = 0;
  const std::vector<ops::Element*> values(1);
  const std::vector<float*> gradients{&sum};
  const Pass pass{.device = *device_, .ops = *kernels, .value = values, .gradient = gradients};
  const Buffer gradient = device_->allocate(4);
  const auto parts = layer.backward_input(pass, {}, gradient);
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->gradient.data(), gradient.data());
  EXPECT_EQ(parts->held.bytes(), layer.info().held_bytes_per_sample);
  ASSERT_TRUE(layer.backward_weights(pass, parts->held));
  EXPECT_EQ(sum, 1) << "once";
}

// A device whose memory ends at a limit that the test may move.
class LimitedDevice final : public test::DeviceAround {
 public:
  LimitedDevice() : DeviceAround("small") {}
  std::int64_t memory_bytes() const override { return limit; }
  std::int64_t memory_free_bytes() const override { return limit - bytes_in_use(); }
  Buffer allocate(std::size_t bytes) override {
    const bool fits = bytes_in_use() + static_cast<std::int64_t>(bytes) <= limit;
    return fits ? DeviceAround::allocate(bytes) : Buffer();
  }

  std::int64_t limit = 0;
};

TEST(StageMemory, EndsInAnErrorWhereverItRunsOut) {
  for (const char* name : {"mlp", "gpt-tiny", "llama", test::kEverything}) {
    const Model model = test::model_of(test::small_options(name));
    const test::Batch batch(model.options, 1, 1);
    LimitedDevice device;
    ASSERT_FALSE(make_stage(model, 0, 7, device).ok());
    device.limit = 1 << 30;
    const auto stage = test::stage_of(model, 0, 7, device);
    const std::int64_t parameters = device.bytes_in_use();
    stage->begin_step(0, 1);
    test::forward(*stage, 0, Buffer(), batch.tokens());
    test::backward_input(*stage, 0, Buffer());
    ASSERT_TRUE(stage->backward_weights(0));
    const std::int64_t most = device.bytes_peak();

    int failures = 0;
    for (std::int64_t limit = parameters; limit < most; limit += (most - parameters) / 50 + 1) {
      device.limit = limit;
      stage->begin_step(0, 1);
      auto result = stage->forward(0, Buffer(), batch.tokens());
      if (result.ok()) result = stage->backward_input(0, Buffer());
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, Code::kInternal);
      EXPECT_THAT(result.error().message, HasSubstr("no memory left"));
      stage->begin_step(0, 1);
      EXPECT_EQ(device.bytes_in_use(), parameters);
      ++failures;
    }
    EXPECT_GT(failures, 10);
  }
}

}  // namespace stage_test
}  // namespace weir::stage
