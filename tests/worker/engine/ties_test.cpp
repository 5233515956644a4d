// SPDX-License-Identifier: Apache-2.0
// Tied tables in real pipelines: the loss is that of one stage, bit for bit, for every cut, k,
// share and move; both ends have the same table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"
#include "tests/worker/engine/moves.h"

namespace weir::engine::test {
namespace ties_test {

using schedule::Dispatch;
using schedule::Family;
using testing::Each;
using weir::test::kTiedLlama;

constexpr int kSteps = 5, kMicroBatches = 8;
constexpr double kLimit = 0.5;

TEST(Ties, GiveTheLossOfOneStageForEveryCutAndSchedule) {
  const auto expected = reference_losses(kTiedLlama, kMicroBatches, kSteps, kLimit);
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
  EXPECT_LT(expected.back(), expected.front());
  struct Case {
    int stages, k;
    Group::On on = Group::On::kHost;
  };
  for (const Case& one : {Case{2, 1}, Case{2, 4}, Case{3, 1}, Case{4, 2}, Case{5, 1},
                          Case{2, 1, Group::On::kStrictDevice}}) {
    Group group(kTiedLlama, one.stages, kSteps, kLimit, nullptr, nullptr, nullptr, one.on);
    const auto plan = plan_of(one.stages, group.layers(), kMicroBatches, Family::kKfkb, one.k,
                              one.k == 1 ? Dispatch::kStrict : Dispatch::kHint);
    ASSERT_EQ(group.start(plan), "");
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));
    EXPECT_EQ(losses_of(group.records(one.stages - 1)), expected)
        << one.stages << " stages, k " << one.k;
  }
}

TEST(Ties, OfReplicasAddTheSumsOfBothEndsFirst) {
  const auto expected = reference_losses(kTiedLlama, kMicroBatches, kSteps, kLimit);
  for (const int stages : {1, 2, 3}) {
    Group group(kTiedLlama, 2 * stages, kSteps, kLimit);
    auto plan = plan_of(stages, group.layers(), 3, Family::kKfkb, 1, Dispatch::kStrict);
    plan.micro_batches = {5, 3};
    ASSERT_EQ(group.start(plan), "");
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));
    for (const int replica : {0, 1}) {
      EXPECT_EQ(losses_of(group.records((replica + 1) * stages - 1)), expected) << stages;
    }
  }
}

TEST(Ties, MoveWithTheirLayers) {
  expect_equal_losses(3, {{0, 1, 2}, {1, 2, 4}}, {{2, 0, 1}, {0, 2, 4}}, Group::On::kHost,
                      kTiedLlama);
  expect_equal_losses(3, {{0, 1, 2}, {1, 2, 4}}, {{1}, {4}}, Group::On::kHost, kTiedLlama);
}

}  // namespace ties_test
}  // namespace weir::engine::test
