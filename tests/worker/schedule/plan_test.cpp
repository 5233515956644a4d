// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/plan.h"

#include <gtest/gtest.h>

namespace weir::schedule {
namespace plan_test {

TEST(Plan, ChangesInBandOnlyWithinAGenerationByATierThatMovesNothing) {
  const Plan current{.revision = 1, .micro_batches = {4}, .stages = {{0, 1}, {2, 3}}};
  Plan next = current;
  next.revision = 2;
  next.trigger = Trigger::kRetune;
  Plan restart = next;
  restart.trigger = Trigger::kRestart;
  Plan other_cut = next;
  other_cut.stages = {{0, 2}, {3, 3}};

  EXPECT_FALSE(starts_generation(&current, next, 0));
  EXPECT_TRUE(starts_generation(&current, next, 1));
  EXPECT_TRUE(starts_generation(&current, restart, 0));
  EXPECT_TRUE(starts_generation(&current, other_cut, 0));
  EXPECT_TRUE(starts_generation(nullptr, next, 0));
}

}  // namespace plan_test
}  // namespace weir::schedule
