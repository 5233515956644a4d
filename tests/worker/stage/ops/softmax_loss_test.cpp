// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/softmax_loss.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace softmax_loss_test {

using test::Doubles;
using test::Floats;
using test::floats;
using test::random_doubles;

double reference(const Doubles& logits, const std::vector<std::int32_t>& targets) {
  const std::size_t vocabulary = logits.size() / targets.size();
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const double* row = logits.data() + r * vocabulary;
    double sum = 0;
    for (std::size_t v = 0; v < vocabulary; ++v) sum += std::exp(row[v]);
    loss += std::log(sum) - row[targets[r]];
  }
  return loss;
}

double softmax_loss(const std::vector<std::int32_t>& targets, float scale, Floats& logits) {
  const auto rows = static_cast<int>(targets.size());
  double loss = 0;
  test::run(SoftmaxLoss{rows, static_cast<int>(logits.size()) / rows, targets.data(), scale,
                        test::elements(logits.data()), &loss});
  return loss;
}

TEST(SoftmaxLoss, IsTheCrossEntropyAndItsGradient) {
  const std::vector<std::int32_t> targets = {0, 2, 1, 2};
  for (const std::size_t vocabulary : {3U, 4U, 9U}) {
    const Doubles logits = random_doubles(4 * vocabulary, vocabulary, 5);
    Floats gradient = floats(logits);
    const double loss = softmax_loss(targets, 0.5F, gradient);

    EXPECT_NEAR(loss, reference(logits, targets), 1e-5);
    test::expect_gradient(gradient, logits,
                          [&](const Doubles& v) { return 0.5 * reference(v, targets); });
  }
}

TEST(SoftmaxLoss, OfEqualLogitsIsTheLogarithmOfTheVocabulary) {
  Floats logits(256, 3);

  EXPECT_NEAR(softmax_loss({17}, 1, logits), std::log(256), 1e-6);
}

TEST(SoftmaxLoss, StandsLargeLogits) {
  const std::vector<std::int32_t> targets = {0, 1};
  Floats logits = {1000, -1000, 1000, -1000};
  const double loss = softmax_loss(targets, 1, logits);

  EXPECT_NEAR(loss, 2000, 1e-3);
  EXPECT_EQ(logits, (Floats{0, 0, 1, -1}));
}

}  // namespace softmax_loss_test
}  // namespace weir::stage::ops
