// SPDX-License-Identifier: Apache-2.0
// Split backwards of a whole job: which plans have them, what status and events say, and when they
// stay whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"
#include "worker/schedule/validate.h"

namespace weir::reconcile::test {
namespace split_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

World job(const std::function<void(World&)>& edit = {}) {
  World world;
  world.splits = true;
  if (edit) edit(world);
  world.run();
  return world;
}

TEST(SplitJob, TheFirstPlanSplitsAndSaysSo) {
  const World world = job();
  const schedule::Plan& plan = *world.plan();
  ASSERT_TRUE(plan.schedule.split);
  EXPECT_THAT(schedule::broken_rules(plan, 4), IsEmpty());
  EXPECT_THAT(world.job.status.plan.split, StartsWith("held 4"));
  EXPECT_THAT(world.last_note("PlanCreated"), HasSubstr("backwards split: held 4"));
  EXPECT_LT(plan.predicted_step_seconds, 0.95 * 19 * 0.06) << "of 1F1B";
}

TEST(SplitJob, ARetuningNamesTheSplit) {
  World world = job();
  world.links(kFast, kFast);
  world.steps(20, 1.05);
  world.links(kFast, kSlow);
  world.steps(30, 1.6);

  ASSERT_GE(world.job.status.plan.revision, 2);
  EXPECT_TRUE(world.plan()->schedule.split);
  EXPECT_THAT(world.last_note("PlanRetuned"),
              AllOf(HasSubstr("split held"), HasSubstr("link n2->n3")));
  EXPECT_THAT(world.job.status.plan.split, StartsWith("held "));
}

TEST(SplitJob, AWorkerThatReadsNoSuchPlanKeepsAllBackwardsWhole) {
  World world = job([](World& old) { old.plan_version = 1; });
  EXPECT_FALSE(world.plan()->schedule.split);
  EXPECT_THAT(world.job.status.plan.split, AllOf(StartsWith("no: worker job-"),
                                                 HasSubstr("reads no plan with split backwards")));
  world.links(kFast, kSlow);
  world.steps(30, 1.75);
  EXPECT_GE(world.job.status.plan.revision, 2) << "other plans come";
  EXPECT_FALSE(world.plan()->schedule.split);
}

TEST(SplitJob, NeverKeepsThemWhole) {
  World world = job([](World& edited) { edited.job.spec.schedule.split = api::SplitMode::kNever; });
  EXPECT_FALSE(world.plan()->schedule.split);
  EXPECT_EQ(world.job.status.plan.split, "no: schedule.split is Never");
}

TEST(SplitJob, AnEditToNeverMakesThemWholeAtOnce) {
  World world = job();
  ASSERT_TRUE(world.plan()->schedule.split);
  world.job.spec.schedule.split = api::SplitMode::kNever;
  ++world.job.meta.generation;
  world.settle();

  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kManual);
  EXPECT_FALSE(world.plan()->schedule.split);
  EXPECT_TRUE(schedule::same_generation(world.plans[0], world.plans[1])) << "in band";
}

TEST(SplitJob, LayersThatCannotSplitAreWhole) {
  const World world = job([](World& whole) { whole.splits = false; });
  EXPECT_FALSE(world.plan()->schedule.split);
  EXPECT_EQ(world.job.status.plan.split, "no: the profile has no layer whose backward splits");
}

TEST(SplitJob, StaticOrdersAreWhole) {
  const World world = job([](World& other) { other.job.spec.schedule.type = "OneFOneB"; });
  EXPECT_FALSE(world.plan()->schedule.split);
  EXPECT_EQ(world.job.status.plan.split, "no: schedule.type is OneFOneB");
}

TEST(BoundPercent, ShowsWhetherAScheduleCouldHelp) {
  World world = job([](World& other) { other.job.spec.schedule.type = "OneFOneB"; });
  world.links(kFast, kFast);
  world.steps(20, 1.2);
  const auto& plan = world.job.status.plan;
  ASSERT_TRUE(plan.bound_percent_simulated && plan.bound_percent_measured);
  const int quiet = *plan.bound_percent_simulated;
  EXPECT_LE(quiet, 5) << "of whole backwards, the only ones of this order";
  EXPECT_GE(*plan.bound_percent_measured, quiet);

  world.links(kFast, kSlow);
  world.steps(20, 1.75);
  EXPECT_GE(*world.job.status.plan.bound_percent_simulated, quiet + 20);
}

}  // namespace split_test
}  // namespace weir::reconcile::test
