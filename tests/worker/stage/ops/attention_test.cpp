// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/attention.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace attention_test {

using test::dot;
using test::Doubles;
using test::elements;
using test::Floats;
using test::floats;
using test::random_doubles;

struct Attention : ::testing::TestWithParam<AttentionShape> {
  AttentionShape s = GetParam();
  std::size_t rows = static_cast<std::size_t>(s.samples * s.sequence);
  std::size_t channels = static_cast<std::size_t>(s.heads * s.size);  // of y
  std::size_t wide = static_cast<std::size_t>(qkv_channels(s));
  Doubles qkv = random_doubles(rows * wide, 1, 2);
  Doubles dy = random_doubles(rows * channels, 2);
  Floats y = Floats(rows * channels, 9);
  Floats log_sums = Floats(rows * static_cast<std::size_t>(s.heads));
  Floats scratch = Floats(attention_scratch_floats(s));

  void SetUp() override {
    test::run(AttentionForward{s, elements(floats(qkv).data()), elements(y.data()), log_sums.data(),
                               scratch.data()});
  }

  // One row of one head, straight from the definition.
  void reference_row(const Doubles& in, std::size_t sample, std::size_t t, std::size_t head,
                     Doubles& out) const {
    const auto size = static_cast<std::size_t>(s.size);
    const auto heads = static_cast<std::size_t>(s.heads);
    const auto groups = static_cast<std::size_t>(s.kv_heads);
    const auto sequence = static_cast<std::size_t>(s.sequence);
    const std::size_t group = head / (heads / groups);
    const auto at = [&](std::size_t row, std::size_t part, std::size_t i) {
      const std::size_t place[] = {head, heads + group, heads + groups + group};
      return in[(sample * sequence + row) * wide + place[part] * size + i];
    };
    const auto window = static_cast<std::size_t>(s.window);
    const std::size_t from = window == 0 || t < window ? 0 : t - window + 1;
    Doubles weight;
    double sum = 0;
    for (std::size_t j = from; j <= t; ++j) {
      double score = 0;
      for (std::size_t i = 0; i < size; ++i) score += at(t, 0, i) * at(j, 1, i);
      weight.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
      sum += weight.back();
    }
    for (std::size_t i = 0; i < size; ++i) {
      double value = 0;
      for (std::size_t j = from; j <= t; ++j) value += weight[j - from] / sum * at(j, 2, i);
      out[(sample * sequence + t) * channels + head * size + i] = value;
    }
  }

  Doubles reference(const Doubles& in) const {
    Doubles out(rows * channels);
    for (std::size_t b = 0; b < static_cast<std::size_t>(s.samples); ++b) {
      for (std::size_t t = 0; t < static_cast<std::size_t>(s.sequence); ++t) {
        for (std::size_t h = 0; h < static_cast<std::size_t>(s.heads); ++h) {
          reference_row(in, b, t, h, out);
        }
      }
    }
    return out;
  }
};

TEST_P(Attention, ForwardFollowsTheDefinition) {
  test::expect_close(y, reference(qkv));
}

struct SmallAttention : Attention {};  // differences of every element

TEST_P(SmallAttention, BackwardIsTheGradient) {
  Floats dqkv(qkv.size(), 9);
  test::run(AttentionBackward{s, elements(floats(qkv).data()), elements(y.data()), log_sums.data(),
                              elements(floats(dy).data()), elements(dqkv.data()), scratch.data()});

  test::expect_gradient(dqkv, qkv, [&](const Doubles& v) { return dot(reference(v), dy); });
}

// Across blocks of rows: the derivative along one random direction is enough.
TEST_P(Attention, BackwardIsTheDerivativeAlongADirection) {
  Floats dqkv(qkv.size(), 9);
  test::run(AttentionBackward{s, elements(floats(qkv).data()), elements(y.data()), log_sums.data(),
                              elements(floats(dy).data()), elements(dqkv.data()), scratch.data()});
  const Doubles direction = random_doubles(qkv.size(), 7);
  const auto loss_at = [&](double step) {
    Doubles moved = qkv;
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
    return dot(reference(moved), dy);
  };
  const double expected = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
  const double actual = dot(Doubles(dqkv.begin(), dqkv.end()), direction);

  EXPECT_NEAR(actual, expected, 1e-4 * std::max(1.0, std::abs(expected)));
}

TEST_P(Attention, NoOutputDependsOnALaterToken) {
  const std::size_t last = (static_cast<std::size_t>(s.sequence) - 1) * wide;
  Doubles changed = qkv;
  for (std::size_t i = 0; i < wide; ++i) changed[last + i] += 1;
  Floats other(y.size());
  test::run(AttentionForward{s, elements(floats(changed).data()), elements(other.data()),
                             log_sums.data(), scratch.data()});

  for (std::size_t i = 0; i < (static_cast<std::size_t>(s.sequence) - 1) * channels; ++i) {
    EXPECT_EQ(other[i], y[i]);
  }
}

TEST(AttentionScores, MayBeLargeWithoutOverflow) {
  const AttentionShape shape{1, 3, 1, 1, 4};
  const Floats qkv(36, 100);
  Floats y(12), log_sums(3), scratch(attention_scratch_floats(shape));
  test::run(AttentionForward{shape, elements(qkv.data()), elements(y.data()), log_sums.data(),
                             scratch.data()});

  for (const float value : y) EXPECT_NEAR(value, 100, 1e-3);
}

const AttentionShape kOneToken{1, 1, 1, 1, 4}, kRagged{2, 5, 2, 2, 3}, kFour{1, 8, 4, 4, 2},
    kThreeBlocks{2, 101, 3, 3, 4}, kGroups{2, 5, 4, 2, 3}, kOneGroup{1, 7, 3, 1, 4},
    kWindow{1, 9, 2, 1, 4, 3}, kGroupsInBlocks{2, 101, 6, 2, 4},
    kWindowInBlocks{1, 150, 2, 2, 6, 50}, kWindowOfOne{1, 60, 1, 1, 4, 1};
INSTANTIATE_TEST_SUITE_P(Shapes, SmallAttention,
                         ::testing::Values(kOneToken, kRagged, kFour, kGroups, kOneGroup, kWindow));
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         ::testing::Values(kOneToken, kRagged, kFour, kThreeBlocks, kGroups,
                                           kOneGroup, kWindow, kGroupsInBlocks, kWindowInBlocks,
                                           kWindowOfOne));

}  // namespace attention_test
}  // namespace weir::stage::ops
