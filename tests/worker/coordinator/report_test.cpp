// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/report.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {
namespace report_test {

struct ReportWorld {
  ReportWorld() {
    for (int index = 0; index < 3; ++index) {
      members.hello(static_cast<control::SessionId>(index + 1), {.member = member(index)},
                    SteadyTime(1h));
    }
  }
  void status(int index, std::int64_t step, double seconds = 2, double loss = NAN) {
    protocol::StageStatus status{.epoch = 1, .step = step, .stage = index, .loss = loss};
    status.step_seconds = seconds;
    status.idle_seconds = seconds / 4;
    status.samples = index == 0 ? 16 : 0;
    members.status(index, status);
    reporter.on_status(index, status);
  }
  protocol::Report make() { return reporter.make(&trains, 2, members, std::nullopt); }

  Members members;
  schedule::Plan trains = plan(1, schedule::Trigger::kInitial);
  Reporter reporter{"job", 100, 1000};
};

TEST(Reporter, TellsTheLowestStepTheLossOfTheLastStageAndTheShareOfIdleTime) {
  ReportWorld world;
  world.status(0, 7);
  world.status(1, 7);
  world.status(2, 8, 2, 3.5);

  const auto report = world.make();

  EXPECT_EQ(report.plan_revision, 1U);
  EXPECT_EQ(report.incarnation, 2);
  EXPECT_EQ(report.step, 7);
  EXPECT_EQ(report.total_steps, 100);
  EXPECT_DOUBLE_EQ(report.loss, 3.5);
  EXPECT_DOUBLE_EQ(report.bubble_ratio, 0.25);
}

TEST(Reporter, KnowsNoLossBeforeTheFirstStep) {
  ReportWorld world;

  const auto report = world.make();

  EXPECT_TRUE(std::isnan(report.loss));
  EXPECT_EQ(report.step, 0);
  EXPECT_FALSE(report.members[0].ready);
}

TEST(Reporter, TellsTheStepOfTheCheckpointUntilAnotherIsDone) {
  ReportWorld world;
  for (int index = 0; index < 3; ++index) {
    world.status(index, 27);
    world.members.ready_state(index, {.revision = 1, .step = 20});
  }
  EXPECT_EQ(world.make().step, 20) << "perhaps the last one: a job that has nothing left to do";
  world.status(0, 21);
  EXPECT_EQ(world.make().step, 20);
}

TEST(Reporter, TakesSamplesPerSecondFromTheLastTenStepsOfStageZero) {
  ReportWorld world;
  for (int step = 1; step <= 10; ++step) world.status(0, step, 4);
  EXPECT_DOUBLE_EQ(world.make().samples_per_second, 4);
  for (int step = 11; step <= 20; ++step) world.status(0, step, 2);
  EXPECT_DOUBLE_EQ(world.make().samples_per_second, 8);

  world.reporter.forget_rates();

  EXPECT_EQ(world.make().samples_per_second, 0);
}

TEST(Reporter, CallsAMemberReadyOnlyOnThePlanInForceAndConnected) {
  ReportWorld world;
  for (int index = 0; index < 3; ++index) world.status(index, 3);
  world.members.closed(2);
  world.trains.revision = 1;

  const auto report = world.make();

  EXPECT_TRUE(report.members[0].ready);
  EXPECT_FALSE(report.members[1].ready && report.members[2].ready);
  world.trains.revision = 2;
  EXPECT_FALSE(world.make().members[0].ready);
}

TEST(Reporter, CountsItsReportsUpFromTheFirstSequence) {
  ReportWorld world;

  EXPECT_EQ(world.make().sequence, 1001);
  EXPECT_EQ(world.make().sequence, 1002);
}

TEST(Reporter, StaysSmallForAVeryLargeJob) {
  ReportWorld world;
  for (int index = 3; index < 700; ++index) {
    world.members.hello(static_cast<control::SessionId>(index + 1), {.member = member(index)},
                        SteadyTime(1h));
    world.status(index, index);
  }

  const auto report = world.make();

  EXPECT_EQ(report.members.size(), 512U);
}

}  // namespace report_test
}  // namespace weir::coordinator::test
