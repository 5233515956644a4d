// SPDX-License-Identifier: Apache-2.0
// Data parallel pipelines whose gradients are summed by NCCL (a fake one): the loss is, bit for
// bit, that of one replica with the whole batch, and an error of NCCL ends the generation for all.
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"
#include "tests/worker/engine/nccl_fakes.h"

namespace weir::engine {
namespace replicas_nccl_test {

using test::Fakes;
using test::Group;
using testing::Each;

schedule::Plan replicated(int stages, int layers, const std::vector<int>& shares) {
  const int least = *std::min_element(shares.begin(), shares.end());
  schedule::Plan plan =
      test::plan_of(stages, layers, least, schedule::Family::kKfkb, 1, schedule::Dispatch::kStrict);
  plan.micro_batches = shares;
  return plan;
}

TEST(ReplicasByNccl, GiveTheLossOfOneReplicaBitForBitWithAnyShares) {
  constexpr int kSteps = 4;
  for (const std::string model : {"mlp", "gpt-tiny"}) {
    const auto expected = test::reference_losses(model, 6, kSteps);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
    for (const std::vector<int>& shares :
         {std::vector{3, 3}, std::vector{5, 1}, std::vector{2, 1, 3}}) {
      const auto replicas = static_cast<int>(shares.size());
      Fakes fakes(2 * replicas);
      Group group(model, 2 * replicas, kSteps, 0, nullptr, nullptr, fakes.over());
      const auto plan = replicated(2, group.layers(), shares);
      ASSERT_EQ(group.start(plan), "");

      EXPECT_THAT(group.finish(), Each(Exit::kFinished));

      for (int r = 0; r < replicas; ++r) {
        EXPECT_EQ(test::losses_of(group.records(2 * r + 1)), expected) << model << " replica " << r;
      }
      for (const auto& api : fakes.apis) EXPECT_EQ(api->opened(), 1);
    }
  }
}

TEST(ReplicasByNccl, AllLearnOfAnErrorOfItAndTheNextGenerationTrains) {
  Fakes fakes(2);
  Group group("mlp", 2, 1'000'000, 0, nullptr, nullptr, fakes.over());
  schedule::Plan plan = replicated(1, group.layers(), {2, 2});
  ASSERT_EQ(group.start(plan), "");
  ASSERT_TRUE(group.reaches(0, 3));

  fakes.apis[1]->faults().async_error = true;
  for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(group.reports_loss(rank)) << rank;
  fakes.apis[1]->faults().async_error = false;

  plan.revision = 2;
  plan.state = schedule::StateMove::kCheckpoint;  // there is none: from step 0
  ASSERT_EQ(group.start(plan, 0, 1), "");
  EXPECT_TRUE(group.reaches(0, 3));
  for (int rank = 0; rank < 2; ++rank) group.engine(rank).leave(std::chrono::seconds(1));
  group.finish();
  for (const auto& api : fakes.apis) EXPECT_EQ(api->aborted(), api->opened());
}

}  // namespace replicas_nccl_test
}  // namespace weir::engine
