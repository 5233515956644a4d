// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/segment.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::coordinator::test {
namespace segment_test {

schedule::Plan plan_of(std::uint32_t revision, int replicas = 1, int stages = 2) {
  schedule::Plan plan;
  plan.revision = revision;
  plan.micro_batches.assign(static_cast<std::size_t>(replicas), 8);
  plan.schedule.caps.assign(static_cast<std::size_t>(stages), 1);
  for (int s = 0; s < stages; ++s) plan.stages.push_back({s, s});
  for (int r = 0; r < replicas; ++r) {
    for (int s = 0; s < stages; ++s) {
      plan.ranks.push_back({.pod = "p" + std::to_string(r * stages + s), .replica = r, .stage = s});
    }
  }
  return plan;
}

// A pipeline of two stages that tells its steps.
struct Job {
  Job() { segments.follow(&plan, 0); }

  // seconds of a message; 0 = it comes in one piece.
  void step(double seconds, double message = 0.002, bool interrupted = false) {
    ++done;
    for (int stage = 0; stage < 2; ++stage) {
      protocol::StageStatus status{.epoch = plan.revision, .step = done, .stage = stage};
      status.step_seconds = stage == 0 ? seconds : 0.9 * seconds;
      status.forward_seconds = 8 * 0.01;
      status.backward_seconds = 8 * 0.02;
      status.interrupted = interrupted && stage == 1;
      status.queued_seconds = stage == 1 ? queued : 0;
      status.throttled_seconds = status.queued_seconds / 2;
      status.sent = {{.forward = stage == 0,
                      .transfers = 10,
                      .timed = message > 0 ? 8 : 0,
                      .seconds = message * 8,
                      .rtt_seconds = 0.0004,
                      .rounding_error = stage == 0 ? rounding : 0,
                      .zeroed = stage == 0 ? 2 * rounding : 0,
                      .connections = stage == 0 && done > 2 ? 4 : 1}};
      segments.on_status(status);
    }
  }
  void change(std::uint32_t revision, int incarnation = 0) {
    plan.revision = revision;
    segments.follow(&plan, incarnation);
  }

  schedule::Plan plan = plan_of(1);
  Segments segments;
  std::int64_t done = 0;
  double rounding = 0.001;  // of the first link
  double queued = 0;        // of the last stage
};

TEST(Segments, HaveMeansOfTheStepsOfThePlan) {
  Job job;
  for (const double seconds : {1.0, 1.02, 0.98, 1.0}) job.step(seconds);

  const auto segment = job.segments.current();

  ASSERT_TRUE(segment);
  EXPECT_EQ(segment->revision, 1U);
  EXPECT_EQ(segment->first_step, 1);
  EXPECT_EQ(segment->steps, 4);
  EXPECT_DOUBLE_EQ(segment->step_seconds, 1);
  EXPECT_NEAR(segment->step_error, std::sqrt(0.0008 / 3 / 4), 1e-9);
  ASSERT_EQ(segment->links.size(), 2U);
  EXPECT_TRUE(segment->links[0].forward);
  EXPECT_NEAR(segment->links[0].seconds, 0.002, 1e-12);
  EXPECT_EQ(segment->links[1].timed, 32);
  EXPECT_EQ(segment->links[1].transfers, 40);
  EXPECT_DOUBLE_EQ(segment->links[1].latency_seconds, 0.0002);
  EXPECT_EQ(segment->links[0].rounding_error, 0.001);
  EXPECT_EQ(segment->links[1].rounding_error, 0);
  EXPECT_EQ(segment->links[0].connections, 4) << "in the last step";
  EXPECT_EQ(segment->links[1].connections, 1);
  ASSERT_EQ(segment->ranks.size(), 2U);
  EXPECT_NEAR(segment->ranks[1].backward_seconds, 0.02, 1e-12);
  EXPECT_FALSE(job.segments.previous());
}

// One step of eight that rounds as usual shows that the others are no state of the model.
TEST(Segments, HaveTheLeastRoundingOfTheNewestEightSteps) {
  Job job;
  const auto expect = [&](double least, const char* why) {
    const auto segment = job.segments.current();
    ASSERT_TRUE(segment);
    EXPECT_EQ(segment->links[0].rounding_error, least) << why;
    EXPECT_EQ(segment->links[0].zeroed, 2 * least) << why;
  };
  const auto steps = [&](int count, double rounding) {
    job.rounding = rounding;
    for (int i = 0; i < count; ++i) job.step(1);
  };
  steps(12, 0.001);
  steps(7, 0.03);
  expect(0.001, "one of the eight is as before");
  steps(1, 0.04);
  expect(0.03, "older ones do not count");
  steps(1, 0.002);
  steps(7, 0.03);
  expect(0.002, "the first of the eight");
}

// Two replicas of two stages. The second one waits less for the other, so it is the slower one.
TEST(Segments, HaveThePartsOfTheReplicaThatWaitsLeast) {
  using protocol::StepPart;
  const schedule::Plan plan = plan_of(1, 2);
  for (const bool all_tell : {true, false}) {
    Segments segments;
    segments.follow(&plan, 0);
    for (int step = 1; step <= 4; ++step) {
      for (int rank = 0; rank < 4; ++rank) {
        protocol::StageStatus status{
            .epoch = 1, .step = step, .replica = rank / 2, .stage = rank % 2};
        status.step_seconds = 1;
        status.forward_seconds = status.backward_seconds = 0.1;
        auto& seconds = status.parts.emplace().seconds;
        seconds[static_cast<std::size_t>(StepPart::kSum)] = rank / 2 == 0 ? 0.3 : 0.1;
        seconds[static_cast<std::size_t>(StepPart::kForward)] = 0.1 * step;
        const bool older = !all_tell && rank == 3;
        if (older) status.parts.reset();
        segments.on_status(status);
      }
    }
    const auto segment = segments.current();
    ASSERT_TRUE(segment);
    ASSERT_EQ(segment->ranks.size(), 4U);
    for (const protocol::SegmentRank& rank : segment->ranks) {
      ASSERT_EQ(rank.parts.has_value(), all_tell && rank.replica == 1) << rank.stage;
      if (!rank.parts) continue;
      EXPECT_DOUBLE_EQ(rank.parts->of(StepPart::kForward), 0.25);
      EXPECT_DOUBLE_EQ(rank.parts->of(StepPart::kSum), 0.1);
    }
  }
}

TEST(Segments, NeedTwoSteps) {
  Job job;
  job.step(1);
  EXPECT_FALSE(job.segments.current());
}

TEST(Segments, HoldSixtyFourSteps) {
  Job job;
  for (int i = 0; i < 100; ++i) job.step(1);
  EXPECT_EQ(job.segments.current()->steps, 64);
  EXPECT_EQ(job.segments.current()->first_step, 37);
}

TEST(Segments, BeginWhereTheStepsHaveChanged) {
  Job job;
  for (int i = 0; i < 20; ++i) job.step(1.07);
  for (int i = 0; i < 3; ++i) job.step(1.41);
  EXPECT_EQ(job.segments.current()->steps, 3);
  EXPECT_NEAR(job.segments.current()->step_seconds, 1.41, 1e-9);
}

TEST(Segments, LeaveOutTheStepIntoWhichTheChangeFell) {
  Job job;
  for (int i = 0; i < 20; ++i) job.step(1.07);
  job.step(1.3);
  for (int i = 0; i < 6; ++i) job.step(1.41);
  EXPECT_EQ(job.segments.current()->first_step, 22);
  EXPECT_NEAR(job.segments.current()->step_seconds, 1.41, 1e-9);
}

TEST(Segments, BeginWhereALinkHasChangedThatStepsHide) {
  Job job;
  for (int i = 0; i < 20; ++i) job.step(1, 0.002);
  for (int i = 0; i < 5; ++i) job.step(1, 0.02);
  EXPECT_EQ(job.segments.current()->steps, 5);
  EXPECT_NEAR(job.segments.current()->links[0].seconds, 0.02, 1e-12);
}

TEST(Segments, DoNotMindALinkWhoseMessagesAreTooShortToMatter) {
  Job job;
  for (int i = 0; i < 20; ++i) job.step(1, 0.0001);
  for (int i = 0; i < 5; ++i) job.step(1, 0.0004);
  EXPECT_EQ(job.segments.current()->steps, 25);
}

TEST(Segments, LeaveOutStepsWithASaveAndKeepPauses) {
  Job job;
  for (int i = 0; i < 9; ++i) job.step(1);
  job.step(3, 0.002, true);
  job.step(1.5);
  const auto segment = job.segments.current();
  EXPECT_EQ(segment->steps, 10);
  EXPECT_DOUBLE_EQ(segment->step_seconds, 1.05);
}

TEST(Segments, TellHowLongEachRankLackedAProcessor) {
  Job job;
  for (int i = 0; i < 8; ++i) job.step(1);
  EXPECT_EQ(job.segments.current()->ranks[1].queued_seconds, 0);
  job.queued = 0.05;
  for (int i = 0; i < 8; ++i) job.step(1);
  const auto segment = job.segments.current();
  ASSERT_EQ(segment->steps, 16);
  EXPECT_EQ(segment->ranks[0].queued_seconds, 0);
  EXPECT_DOUBLE_EQ(segment->ranks[1].queued_seconds, 0.025) << "on average";
  EXPECT_DOUBLE_EQ(segment->ranks[1].throttled_seconds, 0.0125);
}

TEST(Segments, KeepThatOfThePlanBefore) {
  Job job;
  for (int i = 0; i < 8; ++i) job.step(1);
  job.change(2);
  EXPECT_FALSE(job.segments.current());
  EXPECT_EQ(job.segments.previous()->revision, 1U);
  EXPECT_EQ(job.segments.previous()->steps, 8);
  for (int i = 0; i < 4; ++i) job.step(0.8);
  EXPECT_EQ(job.segments.current()->revision, 2U);
  EXPECT_EQ(job.segments.current()->steps, 4);
  EXPECT_EQ(job.segments.previous()->steps, 8);
}

TEST(Segments, TakeStepsOfThePlanBeforeThatComeLate) {
  Job job;
  for (int i = 0; i < 8; ++i) job.step(1);
  const schedule::Plan next = plan_of(2);
  job.segments.follow(&next, 0);
  job.step(1);  // COMMIT has not reached the ranks
  EXPECT_EQ(job.segments.previous()->steps, 9);
}

TEST(Segments, BeginAnewWithAGeneration) {
  Job job;
  for (int i = 0; i < 8; ++i) job.step(1);
  job.change(1, 1);
  EXPECT_FALSE(job.segments.current());
  EXPECT_FALSE(job.segments.previous());
}

TEST(Segments, AreNotMadeOfReplicasThatAverage) {
  schedule::Plan plan = plan_of(1, 2);
  plan.sync.mode = schedule::SyncMode::kPartial;
  Segments segments;
  segments.follow(&plan, 0);
  for (int step = 1; step < 9; ++step) {
    protocol::StageStatus status{.epoch = 1, .step = step};
    status.step_seconds = status.forward_seconds = 1;
    segments.on_status(status);
  }
  EXPECT_FALSE(segments.current());
}

TEST(Segments, AreNotMadeOfWorkersThatDoNotTellTimes) {
  Job job;
  for (int step = 1; step < 9; ++step) {
    for (int stage = 0; stage < 2; ++stage) {
      job.segments.on_status({.epoch = 1, .step = step, .stage = stage, .step_seconds = 1});
    }
  }
  EXPECT_FALSE(job.segments.current());
}

TEST(Segments, SayNothingOfRanksThatThePlanDoesNotHave) {
  Job job;
  job.segments.on_status({.epoch = 1, .step = 1, .replica = 3, .stage = 0});
  job.segments.on_status({.epoch = 1, .step = 1, .replica = 0, .stage = -1});
  job.segments.on_status({.epoch = 9, .step = 1});
  EXPECT_FALSE(job.segments.current());
}

TEST(Segments, StaySmallForALargeJob) {
  schedule::Plan plan = plan_of(1, 40, 16);
  Segments segments;
  segments.follow(&plan, 0);
  for (int step = 1; step < 4; ++step) {
    for (const auto& rank : plan.ranks) {
      protocol::StageStatus status{
          .epoch = 1, .step = step, .replica = rank.replica, .stage = rank.stage};
      status.step_seconds = status.backward_seconds = 1;
      status.forward_seconds = 1 + rank.replica;
      status.parts.emplace().seconds[0] = 0.5;
      status.sent = {{.forward = true, .transfers = 8, .timed = 8, .seconds = 0.01}};
      segments.on_status(status);
    }
  }
  const auto segment = segments.current();
  ASSERT_TRUE(segment);
  EXPECT_EQ(segment->links.size(), std::size_t{protocol::kMostSegmentRanks});
  ASSERT_EQ(segment->ranks.size(), std::size_t{protocol::kMostSegmentRanks});
  EXPECT_EQ(segment->ranks.front().replica, 39) << "the slowest first";
  EXPECT_FALSE(segment->ranks.front().parts);
}

TEST(ChangeIn, IsNoneInFewOrEqualValues) {
  EXPECT_EQ(change_in({}, {.relative = 0.03}), 0U);
  EXPECT_EQ(change_in(std::vector<double>{1, 1, 1, 2, 2}, {.relative = 0.03}), 0U);
  EXPECT_EQ(change_in(std::vector<double>(40, 1.0), {.relative = 0.03}), 0U);
}

TEST(ChangeIn, CountsPlacesOfUnknownValues) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values(8, 1.0);
  values.insert(values.end(), {unknown, unknown, 2, 2, 2, 2});
  EXPECT_EQ(change_in(values, {.relative = 0.25}), 10U);
}

// Random series: steps scatter by 1 to 3 %, and once they become 8 % to 200 % longer or shorter.
TEST(ChangeIn, FindsKnownChangesOfRandomSeries) {
  int found = 0, exact = 0;
  constexpr int kSeries = 400;
  for (std::uint64_t seed = 1; seed <= kSeries; ++seed) {
    Random random(seed);
    const double scatter = 0.01 + 0.02 * random.uniform();
    const double factor = 1 + (0.08 + 2 * random.uniform() * random.uniform());
    const bool slower = random.below(2) == 0;
    const std::size_t before = 8 + random.below(40), after = 4 + random.below(12);
    std::vector<double> values;
    for (std::size_t i = 0; i < before + after; ++i) {
      const double level = i < before ? 1 : slower ? factor : 1 / factor;
      values.push_back(level * std::exp(scatter * random.normal()));
    }
    const std::size_t at = change_in(values, {.relative = 0.03});
    found += at > 0 ? 1 : 0;
    const auto off = static_cast<std::ptrdiff_t>(at) - static_cast<std::ptrdiff_t>(before);
    exact += std::abs(off) <= 1 ? 1 : 0;
  }
  EXPECT_GE(found, kSeries * 98 / 100);
  EXPECT_GE(exact, kSeries * 95 / 100);
}

// Quiet steps with now and then a pause: the window is cut rarely.
TEST(Segments, AreNotCutByQuietSteps) {
  int short_ones = 0, looks = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    Job job;
    for (int i = 0; i < 500; ++i) {
      const double pause = random.below(50) == 0 ? 0.3 : 0;
      job.step(std::exp(0.02 * random.normal()) + pause, 0.001 * std::exp(0.3 * random.normal()));
      if (i < 64) continue;
      ++looks;
      short_ones += job.segments.current()->steps < 20 ? 1 : 0;
    }
  }
  EXPECT_LE(short_ones, looks * 3 / 100);
}

}  // namespace segment_test
}  // namespace weir::coordinator::test
