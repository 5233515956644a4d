// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <chrono>
#include <utility>

#include <gtest/gtest.h>

#include "worker/emulate/emulate.h"

namespace weir::emulate {
namespace delays_test {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

TEST(DelayedDataset, TellsTheSameTokensAsLateAsAsked) {
  const auto inner = data::make_synthetic(32, 8, 1);
  const auto delayed = around(data::make_synthetic(32, 8, 1), 5ms);
  std::array<std::int32_t, 8> inputs{}, targets{}, same_inputs{}, same_targets{};

  const auto begin = steady_clock::now();
  ASSERT_TRUE(delayed->sample(3, 1, 4, inputs, targets));
  const auto took = steady_clock::now() - begin;

  EXPECT_GE(took, 5ms);
  ASSERT_TRUE(inner->sample(3, 1, 4, same_inputs, same_targets));
  EXPECT_EQ(inputs, same_inputs);
  EXPECT_EQ(targets, same_targets);
  EXPECT_EQ(delayed->description(), inner->description());
  EXPECT_EQ(delayed->content(), inner->content());
}

TEST(DelayedDataset, IsTheDatasetItselfWithoutDelay) {
  auto dataset = data::make_synthetic(32, 8, 1);
  const data::Dataset* const same = dataset.get();
  EXPECT_EQ(around(std::move(dataset), 0s).get(), same);
}

TEST(DelayCopy, TakesAsLongAsAsked) {
  const auto begin = steady_clock::now();
  delay_copy(5ms);
  EXPECT_GE(steady_clock::now() - begin, 5ms);
}

}  // namespace delays_test
}  // namespace weir::emulate
