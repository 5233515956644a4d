// SPDX-License-Identifier: Apache-2.0
// Numbers do not depend on the plan: two stages chained by hand give the bits of the whole model,
// for every cut and for every order in which micro-batches are in flight.
#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"

namespace weir::stage {
namespace stage_cut_test {

using device::Buffer;

constexpr int kMicroBatches = 4, kSamples = 2, kSteps = 3;

struct Trained {
  std::vector<double> losses, squares;
  std::vector<std::uint32_t> parameters;
};

// Whole backwards, or split ones: each micro-batch's weights follow `late` inputs later.
constexpr int kWhole = -1;

// A chain of stages that runs groups of `in_flight` forwards, then their backwards.
class Chain {
 public:
  Chain(const Model& model, std::vector<std::pair<int, int>> cut) : model_(model) {
    for (const auto& [first, last] : cut) {
      stages_.push_back(test::stage_of(model, first, last, *device_));
    }
  }

  Trained train(int in_flight, int late = kWhole) {
    Trained trained;
    for (int step = 0; step < kSteps; ++step) {
      for (auto& stage : stages_) stage->begin_step(step, kMicroBatches * kSamples);
      for (int m = 0; m < kMicroBatches; m += in_flight) {
        for (int i = m; i < m + in_flight; ++i) forward(step, i);
        for (int i = m; i < m + in_flight; ++i) {
          backward(i, late != kWhole);
          if (late != kWhole && i >= late) weights(i - late);
        }
      }
      if (late != kWhole) {
        for (int i = kMicroBatches - late; i < kMicroBatches; ++i) weights(i);
      }
      if (stages_.size() > 1) test::add_other_ends(*stages_.front(), *stages_.back());
      for (auto& stage : stages_) {
        stage->finish_gradients();
        const auto squares = *stage->gradient_squares();
        trained.squares.insert(trained.squares.end(), squares.begin(), squares.end());
        stage->optimizer_step();
      }
      trained.losses.push_back(stages_.back()->loss());
    }
    for (auto& stage : stages_) {
      const auto bits = test::parameter_bits(*stage);
      trained.parameters.insert(trained.parameters.end(), bits.begin(), bits.end());
    }
    return trained;
  }

 private:
  void forward(int step, int micro_batch) {
    const test::Batch batch(model_.options, kSamples,
                            static_cast<std::uint64_t>(step * kMicroBatches + micro_batch));
    Buffer current;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      Tokens tokens{.samples = kSamples};
      if (s == 0) tokens.inputs = batch.tokens().inputs;
      if (s + 1 == stages_.size()) tokens.targets = batch.tokens().targets;
      current = test::forward(*stages_[s], micro_batch, current, tokens);
    }
    EXPECT_FALSE(current);
  }
  void backward(int micro_batch, bool split) {
    Buffer gradient;
    for (std::size_t s = stages_.size(); s-- > 0;) {
      const auto part = split ? test::backward_input : test::backward;
      gradient = part(*stages_[s], micro_batch, gradient);
    }
    EXPECT_FALSE(gradient);
  }
  void weights(int micro_batch) {
    for (auto& stage : stages_) EXPECT_TRUE(stage->backward_weights(micro_batch));
  }

  const Model& model_;
  std::unique_ptr<device::Device> device_ = device::make_host_device();
  std::vector<std::unique_ptr<Stage>> stages_;
};

class StageCut : public ::testing::TestWithParam<test::TestedModel> {
 protected:
  const Model model_ = test::model_of(test::small_options(GetParam().name, GetParam().precision));
};

TEST_P(StageCut, GivesTheBitsOfTheWholeModelAtEveryLayerAndInEveryOrder) {
  const int last = test::last_layer(model_);
  const Trained whole = Chain(model_, {{0, last}}).train(1);

  for (int cut = 0; cut < last; ++cut) {
    for (const int in_flight : {2, 4}) {
      const Trained parts = Chain(model_, {{0, cut}, {cut + 1, last}}).train(in_flight);
      EXPECT_EQ(parts.losses, whole.losses) << "cut after " << cut << ", in flight " << in_flight;
      EXPECT_EQ(parts.squares, whole.squares) << "cut after " << cut;
      EXPECT_TRUE(parts.parameters == whole.parameters)
          << "cut after " << cut << ", in flight " << in_flight;
    }
  }
}

TEST_P(StageCut, GivesTheSameBitsWithOneStageForEachLayer) {
  const int last = test::last_layer(model_);
  std::vector<std::pair<int, int>> single;
  for (int i = 0; i <= last; ++i) single.emplace_back(i, i);
  const Trained whole = Chain(model_, {{0, last}}).train(2);
  const Trained parts = Chain(model_, single).train(4);

  EXPECT_EQ(parts.losses, whole.losses);
  EXPECT_TRUE(parts.parameters == whole.parameters);
}

TEST_P(StageCut, GivesTheSameBitsWhenLayersAreRecomputed) {
  const int last = test::last_layer(model_);
  const Trained kept = Chain(model_, {{0, last}}).train(2);

  ModelOptions options = model_.options;
  for (const std::string choice : {"all", GetParam().name == "mlp" ? "hidden1-hidden3" : "head"}) {
    options.recompute = choice;
    const Model recomputed = test::model_of(options);
    for (const int late : {kWhole, 1}) {
      const Trained again = Chain(recomputed, {{0, 3}, {4, last}}).train(4, late);
      EXPECT_EQ(again.losses, kept.losses) << choice;
      EXPECT_TRUE(again.parameters == kept.parameters) << choice;
    }
  }
}

TEST_P(StageCut, GivesTheBitsOfWholeBackwardsWhenTheyAreSplit) {
  const int last = test::last_layer(model_);
  const Trained whole = Chain(model_, {{0, last}}).train(2);

  for (const int late : {0, 1, 2, kMicroBatches}) {
    for (const int in_flight : {1, 2, 4}) {
      const Trained split = Chain(model_, {{0, 3}, {4, last}}).train(in_flight, late);
      EXPECT_EQ(split.losses, whole.losses) << late << " late, in flight " << in_flight;
      EXPECT_TRUE(split.parameters == whole.parameters) << late << " late, in flight " << in_flight;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StageCut, ::testing::ValuesIn(test::tested_models()),
                         test::tested_name);
INSTANTIATE_TEST_SUITE_P(Tied, StageCut,
                         ::testing::Values(test::TestedModel{test::kTiedLlama},
                                           test::TestedModel{test::kTiedGpt},
                                           test::TestedModel{test::kTiedLlama, Precision::kBf16}),
                         test::tested_name);
INSTANTIATE_TEST_SUITE_P(Frozen, StageCut,
                         ::testing::Values(test::TestedModel{test::kFrozenMlp},
                                           test::TestedModel{test::kFrozenMlp, Precision::kBf16}),
                         test::tested_name);

}  // namespace stage_cut_test
}  // namespace weir::stage
