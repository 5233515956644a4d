// SPDX-License-Identifier: Apache-2.0
// A table that the first and the last layer share: two copies with the bits of one. That no cut
// changes them is in stage_cut_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"

namespace weir::stage {
namespace tied_test {

using device::Buffer;
using testing::HasSubstr;

std::vector<float> floats(std::span<const float> of) {
  return {of.begin(), of.end()};
}

// The table in the first and in the last layer.
std::pair<Parameter, Parameter> tables(Stage& stage) {
  auto all = stage.parameters();
  return {all.front(), all.back()};
}

void one_step(Stage& stage, const Model& model, int step) {
  const test::Batch batch(model.options, 2, static_cast<std::uint64_t>(step));
  stage.begin_step(step, 2);
  test::forward(stage, 0, Buffer(), batch.tokens());
  test::backward(stage, 0, Buffer());
  stage.finish_gradients();
}

class Tied : public ::testing::TestWithParam<std::string> {
 protected:
  const std::unique_ptr<device::Device> device_ = device::make_host_device();
  const Model model_ = test::model_of(test::small_options(GetParam()));
};

TEST_P(Tied, TablesAreNamedAndCountOnce) {
  ASSERT_EQ(model_.ties.size(), 1U);
  const Tie& tie = model_.ties[0];
  EXPECT_EQ(tie.last, "lm_head.weight");
  EXPECT_EQ(tie.bytes, 4 * 13 * 16);
  EXPECT_EQ(tie.first_parameter, 0U);
  const ModelOptions options = test::small_options(GetParam());
  const auto untied = describe_model(options, std::make_shared<test::TiedModel>(options, false));
  EXPECT_EQ(untied->parameters - model_.parameters, 13 * 16);
  EXPECT_NE(untied->digest, model_.digest);
  EXPECT_NE(untied->shapes, model_.shapes);
  EXPECT_EQ(untied->layers.back().parameter_bytes, model_.layers.back().parameter_bytes)
      << "both layers hold it";
}

TEST_P(Tied, TablesBeginAndStayEqual) {
  const auto stage = test::stage_of(model_, 0, test::last_layer(model_), *device_);
  const auto [first, last] = tables(*stage);
  EXPECT_EQ(floats(first.value), floats(last.value));
  const std::vector<float> before = floats(first.value);
  double loss = 0;
  for (int step = 0; step < 4; ++step) {
    one_step(*stage, model_, 0);
    if (step == 0) loss = stage->loss();
    stage->optimizer_step();
  }
  EXPECT_LT(stage->loss(), loss);
  EXPECT_NE(floats(first.value), before);
  for (std::size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(floats(first.state()[part]), floats(last.state()[part]));
  }
}

// The gradient of the table is what both layers alone would have, and the norm has it once.
TEST_P(Tied, GradientIsTheSumOfThatOfBothLayers) {
  const ModelOptions options = test::small_options(GetParam());
  const Model untied = *describe_model(options, std::make_shared<test::TiedModel>(options, false));
  const auto two = test::stage_of(untied, 0, test::last_layer(untied), *device_);
  const auto one = test::stage_of(model_, 0, test::last_layer(model_), *device_);
  const auto [first, last] = tables(*two);
  std::ranges::copy(first.value, last.value.begin());
  one_step(*one, model_, 0);
  one_step(*two, untied, 0);
  EXPECT_EQ(one->loss(), two->loss());

  const auto [table, copy] = tables(*one);
  EXPECT_EQ(floats(table.gradient), floats(copy.gradient));
  double squares = 0, of_untied = 0;
  for (std::size_t i = 0; i < table.gradient.size(); ++i) {
    const double a = first.gradient[i], b = last.gradient[i];
    EXPECT_NEAR(table.gradient[i], a + b, 1e-6 * (std::abs(a) + std::abs(b)));
    squares += (a + b) * (a + b);
    of_untied += a * a + b * b;
  }
  const auto sum = [](Stage& stage) {
    const auto layers = *stage.gradient_squares();  // it outlives the loop
    double total = 0;
    for (const double layer : layers) total += layer;
    return total;
  };
  EXPECT_NEAR(sum(*one) - squares, sum(*two) - of_untied, 1e-6 * sum(*two));
}

INSTANTIATE_TEST_SUITE_P(Models, Tied, ::testing::Values(test::kTiedLlama, test::kTiedGpt),
                         test::model_test_name);

// Two layers of which the last one says what its parameter is tied to.
class Claims final : public LayerSource {
 public:
  class Says final : public Layer {
   public:
    Says(std::vector<ParameterSpec> parameters, int index) : parameters_(std::move(parameters)) {
      info_.id = "layer" + std::to_string(index);
      info_.kind = info_.id;
    }
    const LayerInfo& info() const override { return info_; }
    const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
    std::int64_t input_bytes_per_sample() const override { return 0; }
    Result<Forward> forward(const Pass&, const Buffer&) const override { return Forward{}; }
    Result<Buffer> backward(const Pass&, const KeptActivations&, const Buffer&) const override {
      return Buffer();
    }

   private:
    const std::vector<ParameterSpec> parameters_;
    LayerInfo info_;
  };
  explicit Claims(std::vector<std::vector<ParameterSpec>> layers) : all_(std::move(layers)) {}
  std::string name() const override { return "claims"; }
  std::string engine() const override { return ""; }
  Layers layers() const override {
    Layers made;
    for (const auto& one : all_) {
      made.push_back(std::make_unique<Says>(one, static_cast<int>(made.size())));
    }
    return made;
  }

 private:
  const std::vector<std::vector<ParameterSpec>> all_;
};

ParameterSpec spec(const std::string& name, std::vector<std::int64_t> shape,
                   const std::string& tied_to = "") {
  ParameterSpec made{.name = name, .shape = std::move(shape)};
  made.tied_to = tied_to;
  return made;
}

TEST(Ties, AreBetweenTheFirstAndTheLastLayer) {
  const auto refusal = [](std::vector<std::vector<ParameterSpec>> layers) {
    ModelOptions options = test::small_options("");
    const auto described = describe_model(options, std::make_shared<Claims>(std::move(layers)));
    return described ? "" : described.error().message;
  };
  const ParameterSpec table = spec("table", {3, 2});
  EXPECT_EQ(refusal({{table}, {spec("head", {3, 2}, "table")}}), "");
  EXPECT_THAT(refusal({{table}, {spec("head", {3, 2}, "other")}}),
              HasSubstr("head is tied to other, no parameter of the first layer"));
  EXPECT_THAT(refusal({{table}, {spec("head", {2, 3}, "table")}}),
              HasSubstr("head is tied to table, but has another shape"));
  ParameterSpec frozen = spec("head", {3, 2}, "table");
  frozen.trainable = false;
  EXPECT_THAT(refusal({{table}, {frozen}}), HasSubstr("or is trained in another way"));
  EXPECT_THAT(refusal({{table}, {spec("middle", {3, 2}, "table")}, {spec("head", {1})}}),
              HasSubstr("middle is tied; only one of the last layer may be"));
  EXPECT_THAT(refusal({{table}, {spec("a", {3, 2}, "table"), spec("b", {3, 2}, "table")}}),
              HasSubstr("table is tied to two parameters"));
}

}  // namespace tied_test
}  // namespace weir::stage
