// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/report.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"
#include "worker/protocol/codec.h"

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
  protocol::Report make() { return reporter.make(&trains, 2, members, std::nullopt, now); }

  Members members;
  schedule::Plan trains = plan(1, schedule::Trigger::kInitial);
  Reporter reporter{"job", 100, 1000};
  SteadyTime now{2h};
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

TEST(Reporter, TellsForHowLongAMemberIsSilentUntilItIsBack) {
  ReportWorld world;
  world.members.closed(1);
  world.members.closed(2, world.now - 6s);
  EXPECT_EQ(world.make().members[0].silent_seconds, 0) << "its process has ended";
  EXPECT_EQ(world.make().members[1].silent_seconds, 6);
  world.now += 3s;
  EXPECT_EQ(world.make().members[1].silent_seconds, 9);
  EXPECT_EQ(world.make().members[2].silent_seconds, 0);
  world.members.hello(5, {.member = member(1)}, world.now);
  EXPECT_EQ(world.make().members[1].silent_seconds, 0);
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

class LargeReport : public testing::TestWithParam<int> {};

// The numbers have all their digits.
TEST_P(LargeReport, IsBelowTheLimitOfTheOperator) {
  constexpr int kStages = 64;
  const int replicas = GetParam();
  schedule::Plan large = plan(1, schedule::Trigger::kInitial);
  large.ranks.clear();
  large.stages.clear();
  large.micro_batches.assign(replicas, 64);
  for (int s = 0; s < kStages; ++s) large.stages.push_back({s, s});
  Members members;
  Reporter reporter{"1b4e28ba-2fa1-11d2-883f-0016d3cca427", 100'000, 1'700'000'000'000};
  for (const std::uint32_t revision : {1U, 2U}) {
    large.revision = revision;
    reporter.follow(&large, 0);
    for (int step = 1; step <= 3; ++step) {
      for (int rank = 0; rank < replicas * kStages; ++rank) {
        protocol::Member one = member(rank);
        one.pod = "a-job-with-a-long-name-workers-" + std::to_string(rank);
        one.pod_uid = "1b4e28ba-2fa1-11d2-883f-" + std::to_string(100'000'000'000 + rank);
        if (step == 1) {
          members.hello(static_cast<control::SessionId>(rank + 1), {.member = one}, SteadyTime(1h));
          large.ranks.push_back(
              {.pod = one.pod, .replica = rank / kStages, .stage = rank % kStages});
        }
        protocol::StageStatus status{.epoch = revision,
                                     .step = 3 * static_cast<int>(revision) + step,
                                     .replica = rank / kStages,
                                     .stage = rank % kStages};
        status.step_seconds = 1.0 / (3 + rank);
        status.compute_seconds = status.idle_seconds = 1.0 / (7 + rank);
        status.memory_peak_bytes = status.memory_limit_bytes = 79'123'456'789;
        status.forward_seconds = status.backward_seconds = 1.0 / (9 + rank);
        auto& parts = status.parts.emplace().seconds;
        for (std::size_t i = 0; i < parts.size(); ++i) {
          parts[i] = 1.0 / static_cast<double>(11 + rank + static_cast<int>(i));
        }
        for (const bool forward : {true, false}) {
          status.sent.push_back({.forward = forward,
                                 .transfers = 64,
                                 .timed = 60 - step,
                                 .seconds = 1.0 / (13 + rank + step),
                                 .rtt_seconds = 1.0 / 7000});
        }
        members.status(rank, status);
        reporter.on_status(rank, status);
      }
    }
  }
  const auto report = reporter.make(&large, 0, members, std::nullopt, SteadyTime());

  ASSERT_TRUE(report.segment && report.previous_segment);
  const auto tells = [](const protocol::SegmentRank& rank) { return rank.parts.has_value(); };
  EXPECT_EQ(std::ranges::count_if(report.segment->ranks, tells), replicas == 4 ? kStages : 0);
  EXPECT_TRUE(std::ranges::none_of(report.previous_segment->ranks, tells));
  EXPECT_LT(protocol::encode(report).size(), protocol::kMaxReportBytes);
}

INSTANTIATE_TEST_SUITE_P(Replicas, LargeReport, testing::Values(4, 8, 16));

}  // namespace report_test
}  // namespace weir::coordinator::test
