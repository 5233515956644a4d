// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "worker/data/dataset.h"

namespace weir::data {
namespace synthetic_test {

constexpr int kSequence = 64;

struct Sample {
  std::vector<std::int32_t> inputs = std::vector<std::int32_t>(kSequence);
  std::vector<std::int32_t> targets = std::vector<std::int32_t>(kSequence);
};

Sample sample_of(const Dataset& data, std::int64_t step, int index, int batch) {
  Sample sample;
  EXPECT_TRUE(data.sample(step, index, batch, sample.inputs, sample.targets));
  return sample;
}

TEST(Synthetic, TargetsAreTheInputsOneTokenLater) {
  const Sample sample = sample_of(*make_synthetic(256, kSequence, 1), 2, 1, 4);

  for (std::size_t t = 0; t + 1 < kSequence; ++t)
    EXPECT_EQ(sample.targets[t], sample.inputs[t + 1]);
}

TEST(Synthetic, ValidationIsTheSameLanguageInOtherSamples) {
  const auto training = make_synthetic(256, kSequence, 1);
  const auto validation = make_synthetic(256, kSequence, 1, Part::kValidation);
  std::set<std::vector<std::int32_t>> trained;
  std::set<std::int32_t> letters;
  for (int i = 0; i < 500; ++i) {
    const Sample sample = sample_of(*training, 0, i, 500);
    trained.insert(sample.inputs);
    letters.insert(sample.inputs.begin(), sample.inputs.end());
  }
  for (int i = 0; i < 500; ++i) {
    const Sample sample = sample_of(*validation, 0, i, 500);
    EXPECT_FALSE(trained.contains(sample.inputs));
    for (const auto token : sample.inputs) EXPECT_TRUE(letters.contains(token));
  }
}

TEST(Synthetic, DependsOnSeedStepAndIndexOnly) {
  const auto data = make_synthetic(256, kSequence, 1);
  const auto again = make_synthetic(256, kSequence, 1);
  const auto other = make_synthetic(256, kSequence, 2);
  const Sample sample = sample_of(*data, 5, 2, 8);

  EXPECT_EQ(sample.inputs, sample_of(*again, 5, 2, 8).inputs);
  EXPECT_NE(sample.inputs, sample_of(*other, 5, 2, 8).inputs);
  EXPECT_NE(sample.inputs, sample_of(*data, 5, 3, 8).inputs);
  EXPECT_NE(sample.inputs, sample_of(*data, 6, 2, 8).inputs);
}

TEST(Synthetic, StaysWithinASmallVocabulary) {
  for (const int vocabulary : {1, 2, 5, 300}) {
    const Sample sample = sample_of(*make_synthetic(vocabulary, kSequence, 3), 0, 0, 1);
    for (const auto token : sample.targets) {
      EXPECT_GE(token, 0);
      EXPECT_LT(token, vocabulary);
    }
  }
}

// The mean surprise of the next token when only the last one is known, over the language's own
// statistics: what a model reaches without looking further back.
TEST(Synthetic, CanBeLearntFromTheLastTokenAlone) {
  const auto data = make_synthetic(256, kSequence, 1);
  std::map<std::int32_t, std::map<std::int32_t, double>> following;
  double total = 0;
  for (int i = 0; i < 400; ++i) {
    const Sample sample = sample_of(*data, 0, i, 400);
    for (std::size_t t = 0; t < kSequence; ++t, ++total) {
      ++following[sample.inputs[t]][sample.targets[t]];
    }
  }
  double surprise = 0;
  for (const auto& [token, counts] : following) {
    double sum = 0;
    for (const auto& [next, count] : counts) sum += count;
    for (const auto& [next, count] : counts) surprise -= count / total * std::log(count / sum);
  }

  EXPECT_LT(surprise, 0.5 * std::log(256));
  EXPECT_GT(surprise, 0.5);
}

}  // namespace synthetic_test
}  // namespace weir::data
