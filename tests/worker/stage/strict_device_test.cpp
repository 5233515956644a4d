// SPDX-License-Identifier: Apache-2.0
// Stages on a device whose memory the host does not reach: the same bits as on the host, without a
// touch of that memory and without a read that does not wait for the ops before it.
#include "tests/support/strict_device.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"
#include "worker/device/host_view.h"

namespace weir::stage {
namespace strict_device_test {

using device::Buffer;
using device::HostView;
using test::StrictDevice;
using Stages = std::vector<std::unique_ptr<Stage>>;

constexpr int kSteps = 4, kMicroBatches = 3, kSamples = 2;

// What passes through the engine between stages on two devices: the host's memory.
Buffer from_to(device::Device& from, Buffer tensor, device::Device& to) {
  const auto staged = from.download(std::move(tensor));
  EXPECT_TRUE(staged);
  Buffer there = to.allocate_staging(staged->size());
  std::copy_n(staged->data(), staged->size(), there.data());
  auto moved = to.upload(std::move(there));
  EXPECT_TRUE(moved);
  return *std::move(moved);
}

struct Trained {
  std::vector<double> losses, squares;
  std::vector<std::vector<std::uint32_t>> parameters;  // by stage
  bool operator==(const Trained&) const = default;
};

// Each stage on its own device. split: weights follow one micro-batch later. clip: the factor of
// the last step but one.
Trained train(const Model& model, const Stages& stages, float clip, bool split) {
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& stage : stages) stage->begin_step(step, kMicroBatches * kSamples);
    for (int m = 0; m < kMicroBatches; ++m) {
      const test::Batch batch(model.options, kSamples,
                              static_cast<std::uint64_t>(step * kMicroBatches + m + 1));
      Buffer tensor;
      for (std::size_t s = 0; s < stages.size(); ++s) {
        if (s > 0) {
          tensor = from_to(stages[s - 1]->device(), std::move(tensor), stages[s]->device());
        }
        Tokens tokens = batch.tokens();
        if (s > 0) tokens.inputs = {};
        if (s + 1 < stages.size()) tokens.targets = {};
        tensor = test::forward(*stages[s], m, tensor, tokens);
      }
      tensor = Buffer();
      for (std::size_t s = stages.size(); s-- > 0;) {
        if (s + 1 < stages.size()) {
          tensor = from_to(stages[s + 1]->device(), std::move(tensor), stages[s]->device());
        }
        tensor = (split ? test::backward_input : test::backward)(*stages[s], m, tensor);
        if (split && m > 0) {
          EXPECT_TRUE(stages[s]->backward_weights(m - 1));
        }
      }
    }
    for (const auto& stage : stages) {
      if (split) {
        EXPECT_TRUE(stage->backward_weights(kMicroBatches - 1));
      }
    }
    for (const auto& stage : stages) {
      const auto squares = stage->gradient_squares();
      EXPECT_TRUE(squares);
      trained.squares.insert(trained.squares.end(), squares->begin(), squares->end());
      if (step + 2 == kSteps) stage->scale_gradients(clip);
      stage->optimizer_step();
    }
    trained.losses.push_back(stages.back()->loss());
  }
  for (const auto& stage : stages) trained.parameters.push_back(test::parameter_bits(*stage));
  return trained;
}

class OnAStrictDevice : public testing::TestWithParam<test::TestedModel> {
 protected:
  // The same cut on the host, with whole backwards, and on strict devices.
  static std::pair<Trained, Trained> trained(int parts, GraphUse graphs = GraphUse::kOff,
                                             bool split = false) {
    const auto made_on =
        graphs == GraphUse::kOff ? StrictDevice::Graphs::kNone : StrictDevice::Graphs::kMade;
    const Model model = test::model_of(test::small_options(GetParam().name, GetParam().precision));
    const int layers = static_cast<int>(model.layers.size());
    std::vector<std::unique_ptr<StrictDevice>> devices;
    std::vector<std::unique_ptr<device::Device>> hosts;
    Stages strict, plain;
    for (int part = 0; part < parts; ++part) {
      const int first = layers * part / parts, last = layers * (part + 1) / parts - 1;
      devices.push_back(std::make_unique<StrictDevice>(made_on));
      hosts.push_back(device::make_host_device());
      auto made = test::make_strict_stage(model, first, last, *devices.back(), graphs);
      EXPECT_TRUE(made) << made.error().message;
      strict.push_back(*std::move(made));
      plain.push_back(test::stage_of(model, first, last, *hosts.back()));
    }
    std::pair<Trained, Trained> both{train(model, strict, 0.125F, split),
                                     train(model, plain, 0.125F, false)};
    for (const auto& stage : strict) {
      if (graphs == GraphUse::kOff) {
        EXPECT_EQ(stage->graph_launches(), 0);
      } else {
        const int passes = split ? 3 : 2;
        EXPECT_GE(stage->graph_launches(), passes * kMicroBatches * (kSteps - 2))
            << "addresses recur";
      }
    }
    return both;
  }
};

TEST_P(OnAStrictDevice, OneStageLearnsToTheBitsOfTheHost) {
  const auto [strict, host] = trained(1);
  EXPECT_EQ(strict.losses, host.losses);
  EXPECT_EQ(strict.squares, host.squares);
  EXPECT_TRUE(strict.parameters == host.parameters);
  EXPECT_TRUE(std::ranges::all_of(host.losses, [](double loss) { return std::isfinite(loss); }));
  EXPECT_EQ(host.losses.size(), static_cast<std::size_t>(kSteps));
}

TEST_P(OnAStrictDevice, TwoStagesLearnToTheBitsOfTheHost) {
  const auto [strict, host] = trained(2);
  EXPECT_EQ(strict.losses, host.losses);
  EXPECT_EQ(strict.squares, host.squares);
  EXPECT_TRUE(strict.parameters == host.parameters);
  EXPECT_EQ(host.losses.size(), static_cast<std::size_t>(kSteps));
}

TEST_P(OnAStrictDevice, GraphsGiveTheBitsOfTheHost) {
  for (const int parts : {1, 2}) {
    const auto [strict, host] = trained(parts, GraphUse::kAlways);
    EXPECT_TRUE(strict == host) << parts << " stages";
    EXPECT_EQ(host.losses.size(), static_cast<std::size_t>(kSteps));
  }
}

TEST_P(OnAStrictDevice, SplitBackwardsGiveTheBitsOfWholeOnesOnTheHost) {
  for (const GraphUse graphs : {GraphUse::kOff, GraphUse::kAlways}) {
    const auto [strict, host] = trained(2, graphs, true);
    EXPECT_TRUE(strict == host);
    EXPECT_EQ(host.losses.size(), static_cast<std::size_t>(kSteps));
  }
}

// Gradients by layer of a step of two micro-batches. resumed: they are added up in two parts.
std::vector<double> squares_of_two(Stage& stage, const Model& model, bool resumed) {
  constexpr int kBoth = 2 * kSamples;
  stage.begin_step(0, kBoth);
  for (int m = 0; m < 2; ++m) {
    if (resumed && m == 1) {
      stage.join_ties();
      stage.resume_step(0, kBoth);
    }
    const int id = resumed ? 0 : m;
    const test::Batch batch(model.options, kSamples, static_cast<std::uint64_t>(m + 1));
    test::forward(stage, id, Buffer(), batch.tokens());
    test::backward(stage, id, Buffer());
  }
  return *stage.gradient_squares();
}

TEST_P(OnAStrictDevice, AStepGoesOnWithTheSumsThatItHas) {
  const Model model = test::model_of(test::small_options(GetParam().name, GetParam().precision));
  const int last = test::last_layer(model);
  StrictDevice device;
  const auto host = device::make_host_device();
  const auto strict = *test::make_strict_stage(model, 0, last, device);
  const auto plain = test::stage_of(model, 0, last, *host);
  const auto expected = squares_of_two(*plain, model, false);
  EXPECT_EQ(squares_of_two(*plain, model, true), expected);
  EXPECT_EQ(squares_of_two(*strict, model, true), expected);
}

TEST_P(OnAStrictDevice, AWarmUpRunsAnOpOfEachKindAndLeavesNoTrace) {
  const Model model = test::model_of(test::small_options(GetParam().name, GetParam().precision));
  const int last = static_cast<int>(model.layers.size()) - 1;
  const auto host = device::make_host_device();
  StrictDevice device;
  Stages warm, plain;
  warm.push_back(*test::make_strict_stage(model, 0, last, device));
  plain.push_back(test::stage_of(model, 0, last, *host));
  const auto before = test::parameter_bits(*warm[0]);
  const std::size_t done = device.done();

  ASSERT_TRUE(warm[0]->warm_up(kSamples));

  EXPECT_GT(device.done(), done + 2 * model.layers.size()) << "forwards and backwards";
  EXPECT_TRUE(test::parameter_bits(*warm[0]) == before);
  EXPECT_TRUE(train(model, warm, 0.125F, false) == train(model, plain, 0.125F, false));
}

TEST_P(OnAStrictDevice, APassWaitsForTheDeviceOnce) {
  const Model model = test::model_of(test::small_options(GetParam().name, GetParam().precision));
  const int last = static_cast<int>(model.layers.size()) - 1;
  StrictDevice device;
  const auto stage = *test::make_strict_stage(model, 0, last, device);
  stage->begin_step(0, kSamples);
  const test::Batch batch(model.options, kSamples, 1);
  const int before = device.waits();

  test::forward(*stage, 0, Buffer(), batch.tokens());
  EXPECT_EQ(device.waits(), before + 1) << "tokens go to the device without a wait of their own";
  test::backward(*stage, 0, Buffer());
  EXPECT_EQ(device.waits(), before + 2);
}

INSTANTIATE_TEST_SUITE_P(Models, OnAStrictDevice, testing::ValuesIn(test::tested_models()),
                         test::tested_name);

class StrictParameters : public testing::Test {
 protected:
  const Model model_ = test::model_of(test::small_options("mlp"));
  StrictDevice device_;
  std::unique_ptr<Stage> stage_ = *test::make_strict_stage(model_, 0, 0, device_);
};

TEST_F(StrictParameters, EndTheProcessThatTouchesThem) {
  const std::vector<Parameter> parameters = stage_->parameters();
  const LayerSum sums = stage_->layer_sums().front();
  EXPECT_DEATH(EXPECT_EQ(parameters[0].value[0], 0), "");
  EXPECT_DEATH(parameters[0].value[0] = 1, "");
  EXPECT_DEATH(parameters[0].adam_m[0] = 1, "");
  EXPECT_DEATH(EXPECT_EQ(sums.sums[0], 0), "");
  EXPECT_DEATH(sums.gradient[0] = 1, "");
}

TEST_F(StrictParameters, ChangeWhenSomebodyWaitsForTheirOps) {
  const std::size_t before = device_.done();
  stage_->begin_step(0, 1);
  EXPECT_EQ(device_.done(), before) << "only enqueued";
  EXPECT_GT(device_.enqueued(), before);

  ASSERT_TRUE(device_.synchronize());

  EXPECT_EQ(device_.done(), device_.enqueued());
}

TEST_F(StrictParameters, AreSeenAndChangedThroughViews) {
  const std::span<float> value = stage_->parameters()[0].value;
  const auto host = device::make_host_device();
  const auto plain = test::stage_of(model_, 0, 0, *host);
  auto view = HostView<float>::of(device_, value);
  ASSERT_TRUE(view);
  const std::span<float> expected = plain->parameters()[0].value;
  EXPECT_TRUE(std::ranges::equal(view->values(), expected));

  view->values()[1] = 7;
  EXPECT_EQ(HostView<float>::of(device_, value)->values()[1], expected[1]) << "not written back";
  ASSERT_TRUE(view->write_back());
  EXPECT_EQ(HostView<float>::of(device_, value)->values()[1], 7);
}

TEST_F(StrictParameters, AreCopiedBesideOpsAtTheLastMoment) {
  const std::span<float> gradient = stage_->layer_sums().front().gradient;
  const Buffer staged = device_.allocate_staging(gradient.size_bytes());
  stage_->begin_step(0, 1);

  const auto copy = device_.read_beside(staged.data(), gradient.data(), gradient.size_bytes());
  ASSERT_TRUE(copy);

  EXPECT_TRUE(std::isnan(*staged.as<float>()));
  ASSERT_TRUE((*copy)->wait());
  EXPECT_EQ(*staged.as<float>(), 0);
}

TEST(HostViews, OfTheHostAreItsMemory) {
  const auto host = device::make_host_device();
  std::vector<float> values = {1, 2};
  auto view = HostView<float>::of(*host, std::span(values));
  ASSERT_TRUE(view);
  EXPECT_EQ(view->values().data(), values.data());
  EXPECT_EQ(HostView<float>::to_fill(*host, std::span(values))->values().data(), values.data());
}

}  // namespace strict_device_test
}  // namespace weir::stage
