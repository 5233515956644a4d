// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/embedding.h"

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"

namespace weir::stage::ops {
namespace embedding_test {

using test::dot;
using test::Doubles;
using test::elements;
using test::Floats;
using test::floats;
using test::random_doubles;

const std::vector<std::int32_t> kTokens = {2, 0, 2, 4, 4, 2};  // two samples of three

TEST(Embedding, AddsTokenAndPositionRows) {
  const Floats tokens = {0, 1, 10, 11, 20, 21, 30, 31, 40, 41};
  const Floats positions = {0.5F, 0.25F, 100, 200, 300, 400};
  Floats y(12);
  test::run(EmbeddingForward{{2, 3, 2},
                             kTokens.data(),
                             elements(tokens.data()),
                             elements(positions.data()),
                             elements(y.data())});

  EXPECT_EQ(y, (Floats{20.5F, 21.25F, 100, 201, 320, 421, 40.5F, 41.25F, 140, 241, 320, 421}));
}

TEST(Embedding, BackwardIsTheGradientOfBothTables) {
  const EmbeddingShape shape{2, 3, 2};
  const Doubles table = random_doubles(10, 1);
  const Doubles positions = random_doubles(6, 2);
  const Doubles dy = random_doubles(12, 3);
  const auto reference = [](const Doubles& a, const Doubles& b) {
    Doubles y;
    for (std::size_t i = 0; i < kTokens.size(); ++i) {
      for (std::size_t c = 0; c < 2; ++c) {
        y.push_back(a[static_cast<std::size_t>(kTokens[i]) * 2 + c] + b[i % 3 * 2 + c]);
      }
    }
    return y;
  };
  Floats dtable(10, 0), dpositions(6, 0);
  test::run(EmbeddingBackward{shape, kTokens.data(), elements(floats(dy).data()), dtable.data(),
                              dpositions.data()});

  test::expect_gradient(dtable, table,
                        [&](const Doubles& v) { return dot(reference(v, positions), dy); });
  test::expect_gradient(dpositions, positions,
                        [&](const Doubles& v) { return dot(reference(table, v), dy); });
}

TEST(ContextEmbedding, PutsTheLastTokensSideBySideOldestFirst) {
  const Floats table = {0, 1, 2, 3, 4, -1};  // one channel, row 5 is the padding
  Floats y(18);
  test::run(ContextEmbeddingForward{
      {2, 3, 1, 3, 5}, kTokens.data(), elements(table.data()), elements(y.data())});

  EXPECT_EQ(y, (Floats{-1, -1, 2, -1, 2, 0, 2, 0, 2, -1, -1, 4, -1, 4, 4, 4, 4, 2}));
}

TEST(ContextEmbedding, BackwardIsTheGradientOfTheTable) {
  const ContextShape shape{2, 3, 2, 2, 5};
  const Doubles table = random_doubles(12, 1);
  const Doubles dy = random_doubles(24, 2);
  Floats gradient(12, 0);
  test::run(ContextEmbeddingBackward{shape, kTokens.data(), elements(floats(dy).data()),
                                     gradient.data()});

  const auto loss = [&](const Doubles& v) {
    double sum = 0;
    for (std::size_t place = 0; place < 12; ++place) {
      const std::size_t t = place / 2 % 3;
      const bool padded = place % 2 == 0 && t == 0;
      const auto row =
          padded ? std::size_t{5} : static_cast<std::size_t>(kTokens[place / 2 - 1 + place % 2]);
      for (std::size_t c = 0; c < 2; ++c) sum += v[row * 2 + c] * dy[place * 2 + c];
    }
    return sum;
  };
  test::expect_gradient(gradient, table, loss);
}

}  // namespace embedding_test
}  // namespace weir::stage::ops
